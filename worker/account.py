"""What an attempt took so far, and how much is left of it. Kept by its own thread; pure but for the clock."""

from __future__ import annotations

import time
from dataclasses import dataclass

from engine import Metrics
from tasks.job import Batching, Job, JobMetrics


@dataclass(slots=True)
class Times:
    """Of one attempt; None: not known, or not yet."""

    load_ms: float | None = None
    upload_ms: float | None = None
    engine: Metrics | None = None
    mode: str = "request"


def job_metrics(job: Job, claimed_at: float, times: Times) -> JobMetrics:
    """The metrics of the contract, as far as they are known."""
    assert job.started_at is not None
    before_ms = (job.started_at - job.created_at).total_seconds() * 1000
    engine = times.engine
    metrics = JobMetrics(
        queue_ms=before_ms + (engine.queue_ms if engine else 0.0),
        preprocess_ms=None if times.load_ms is None else times.load_ms + (engine.encode_ms if engine else 0.0),
        denoise_ms=engine and engine.denoise_ms,
        decode_ms=engine and engine.decode_ms,
        upload_ms=times.upload_ms,
        total_ms=before_ms + (time.monotonic() - claimed_at) * 1000,
        batch_size_mean=engine and engine.batch_rows_mean,
        device_seconds=engine and engine.device_seconds,
    )
    rounded = {name: round(value, 3) for name, value in metrics.model_dump().items() if value is not None}
    return metrics.model_copy(update=rounded)


def batching(times: Times, mates: tuple[str, ...] = ()) -> Batching | None:
    """Whose company it had, of which `mates` may be named; None if it never ran."""
    engine = times.engine
    if engine is None or not engine.batch_rows_max:
        return None
    mean = round(engine.batch_rows_mean, 3)
    return Batching(mode=times.mode, rows_mean=mean, rows_max=engine.batch_rows_max, apart=engine.apart, mates=mates)

"""A job's record in a store (a flat hash of strings) to `Job` and back, and the ETA. Pure; shared by both stores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from tasks.job import Job, JobError, JobStatus, Progress
from tasks.request import GenerationRequest

#: Error types that are the requester's own doing: such a failed job is no dead letter.
_REQUESTERS_FAULT = frozenset({"invalid_request", "invalid_image", "deadline_exceeded"})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A record as one atomic read found it, with what the ETA needs to know of its model."""

    job_id: str
    record: Mapping[str, str]
    now_ms: int
    #: Rank in the model's queue; None: not queued.
    position: int | None
    #: Seconds that an attempt of this model takes on average; None: never measured.
    pace_s: float | None
    num_running: int
    num_workers: int


def is_dead_letter(error: JobError | None) -> bool:
    """Whether a job that failed so is kept for an operator."""
    return error is not None and error.type not in _REQUESTERS_FAULT


def encode_request(request: GenerationRequest) -> str:
    return request.model_dump_json(exclude_defaults=True)


def encode_each(records: Sequence[BaseModel]) -> str:
    """A JSON array, or '' for none: an empty field is not stored."""
    return "[" + ",".join(record.model_dump_json(exclude_defaults=True) for record in records) + "]" if records else ""


def encode_optional(record: BaseModel | None) -> str:
    text = "" if record is None else record.model_dump_json(exclude_defaults=True)
    return "" if text == "{}" else text


def decode_job(snapshot: Snapshot) -> Job:
    record = snapshot.record
    status = JobStatus(record["status"])
    request = GenerationRequest.model_validate_json(record["request"])
    return Job.model_validate(
        {
            "id": snapshot.job_id,
            "status": status,
            "request": request,
            "retry_of": record.get("retry_of"),
            "progress": _progress(snapshot, status, request),
            "attempt": int(record["attempt"]),
            "worker": record.get("worker"),
            "created_at": moment(record["created"]),
            "started_at": moment(record.get("started")),
            "finished_at": moment(record.get("finished")),
            "outputs": json.loads(record.get("outputs", "[]")),
            "error": json.loads(record.get("error", "null")),
            "errors": json.loads("[" + record.get("errors", "") + "]"),
            "warnings": json.loads(record.get("warnings", "[]")),
            "metrics": json.loads(record.get("metrics", "{}")),
        }
    )


def moment(milliseconds: str | float | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(int(milliseconds) / 1000, UTC)


def _progress(snapshot: Snapshot, status: JobStatus, request: GenerationRequest) -> Progress:
    reported = snapshot.record.get("progress")
    num_steps = request.num_inference_steps or 0
    if reported is not None:
        progress = Progress.model_validate_json(reported)
    elif status is JobStatus.RUNNING:
        progress = Progress(stage="loading", num_steps=num_steps)
    else:
        progress = Progress(num_steps=num_steps)
    update: dict[str, Any] = {"queue_position": snapshot.position, "eta_s": _eta_s(snapshot, status, progress.fraction)}
    if status is JobStatus.SUCCEEDED:
        num_steps = progress.num_steps or num_steps
        update |= {"stage": "uploading", "step": num_steps, "num_steps": num_steps, "fraction": 1.0}
    return progress.model_copy(update=update)


def _eta_s(snapshot: Snapshot, status: JobStatus, fraction: float) -> float | None:
    """Queued: rounds of the jobs ahead, then its own. Running: what is left of it, by its own speed once that shows."""
    if status is JobStatus.QUEUED and snapshot.position is not None and snapshot.pace_s is not None:
        slots = max(snapshot.num_running, snapshot.num_workers, 1)
        return round(snapshot.pace_s * (1 + snapshot.position / slots), 3)
    if status is JobStatus.RUNNING:
        elapsed_s = max(0, snapshot.now_ms - int(snapshot.record["started"])) / 1000
        if fraction >= 0.05:
            return round(elapsed_s * (1 - fraction) / fraction, 3)
        if snapshot.pace_s is not None:
            return round(max(snapshot.pace_s - elapsed_s, 0.0), 3)
    return None

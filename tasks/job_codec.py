"""A job's record in a store (a flat hash of strings) to `Job` and back, and the ETA. Pure; shared by both stores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from tasks.eta import Load, Speed, own_s, queued_eta_s
from tasks.job import Job, JobError, JobMetrics, JobStatus, Progress
from tasks.quotas import DEFAULT_TENANT
from tasks.request import GenerationRequest

#: Error types that are the requester's own doing: such a failed job is no dead letter.
_REQUESTERS_FAULT = frozenset({"invalid_request", "invalid_image", "deadline_exceeded"})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A record as one atomic read found it, with what the ETA needs to know of its model."""

    job_id: str
    record: Mapping[str, str]
    now_ms: int
    #: Its place in the model's queue; None: not queued.
    load: Load | None
    #: Seconds that an attempt of this model takes on average; None: never measured.
    pace_s: float | None
    num_running: int
    #: Of the live workers that serve its model.
    speeds: tuple[Speed, ...]
    #: Whether its abort key is there; of a live job.
    abort_wanted: bool = False


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
            "tenant": record.get("tenant", DEFAULT_TENANT),
            "progress": _progress(snapshot, status, request),
            "abort_requested": snapshot.abort_wanted,
            "attempt": int(record["attempt"]),
            "worker": record.get("worker"),
            "created_at": moment(record["created"]),
            "started_at": moment(record.get("started")),
            "finished_at": moment(record.get("finished")),
            "outputs": json.loads(record.get("outputs", "[]")),
            "error": json.loads(record.get("error", "null")),
            "errors": json.loads("[" + record.get("errors", "") + "]"),
            "warnings": json.loads(record.get("warnings", "[]")),
            "metrics": _metrics(record, status),
        }
    )


def _metrics(record: Mapping[str, str], status: JobStatus) -> JobMetrics:
    """As its attempt measured; of a job that ended without one, what the record's own times tell."""
    metrics = JobMetrics.model_validate_json(record.get("metrics", "{}"))
    if not status.is_terminal or metrics.total_ms is not None:
        return metrics
    created, finished = int(record["created"]), int(record["finished"])
    queue_ms = float(max(0, int(record.get("started", finished)) - created))
    return metrics.model_copy(update={"queue_ms": queue_ms, "total_ms": float(max(0, finished - created))})


def work_of(request: GenerationRequest) -> int:
    """The row-steps of a resolved request."""
    steps = request.num_inference_steps or 1
    if request.image is not None and request.strength is not None:
        steps = max(1, int(steps * request.strength))
    return steps * request.num_outputs


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
    position = None if snapshot.load is None else snapshot.load.position
    update: dict[str, Any] = {"queue_position": position, "eta_s": _eta_s(snapshot, status, request, progress)}
    if status is not JobStatus.RUNNING:  # its last report may be from before
        update["detail"] = None
    if status is JobStatus.SUCCEEDED:
        num_steps = progress.num_steps or num_steps
        update |= {"stage": "uploading", "step": num_steps, "num_steps": num_steps, "fraction": 1.0}
    return progress.model_copy(update=update)


def _eta_s(snapshot: Snapshot, status: JobStatus, request: GenerationRequest, progress: Progress) -> float | None:
    """None where nobody can know: no live worker serves the model, nothing is measured, the estimate has run out. Nor
    will there be a result once the job's end is wanted."""
    if not snapshot.speeds or snapshot.abort_wanted:
        return None
    if status is JobStatus.QUEUED and snapshot.load is not None:
        return _rounded(_queued_eta_s(snapshot, snapshot.load, request))
    if status is JobStatus.RUNNING:
        return _rounded(_running_eta_s(snapshot, request, progress))
    return None


def _queued_eta_s(snapshot: Snapshot, load: Load, request: GenerationRequest) -> float | None:
    """By step times; before any was measured, by how long attempts took that ended well."""
    num_steps = work_of(request) // request.num_outputs
    eta_s = queued_eta_s(load, request.num_outputs, num_steps, snapshot.speeds)
    if eta_s is None and snapshot.pace_s is not None:
        slots = max(snapshot.num_running, len(snapshot.speeds))
        return snapshot.pace_s * (1 + load.position / slots)
    return eta_s


def _running_eta_s(snapshot: Snapshot, request: GenerationRequest, progress: Progress) -> float | None:
    """What its worker told with its last progress, less the time since; before that, an estimate of the whole."""
    record = snapshot.record
    if progress.eta_s is not None:
        left_s = progress.eta_s - (snapshot.now_ms - int(record.get("told", snapshot.now_ms))) / 1000
    else:
        whole_s = own_s(request.num_outputs, work_of(request) // request.num_outputs, snapshot.speeds)
        whole_s = snapshot.pace_s if whole_s is None else whole_s
        if whole_s is None:
            return None
        left_s = whole_s - (snapshot.now_ms - int(record["started"])) / 1000
    return left_s if left_s >= 0 else None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)

"""The job as data, and its state machine. `store.lua` enforces the same table; a contract test compares the two."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer

from tasks.quotas import DEFAULT_TENANT
from tasks.request import GenerationRequest


class JobStatus(StrEnum):
    #: Accepted and waiting for a worker. `claim`, `abort` or `reap` moves it on.
    QUEUED = "queued"
    #: Leased to one attempt of one worker. `finish`, `release`, `retry` or `reap` moves it on.
    RUNNING = "running"
    #: Every output is stored and verified. Never changes.
    SUCCEEDED = "succeeded"
    #: It cannot be done, or its attempts are used up; `error` says why. Never changes.
    FAILED = "failed"
    #: Somebody asked for that. Never changes.
    ABORTED = "aborted"

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.ABORTED})

TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.QUEUED: frozenset({JobStatus.RUNNING, JobStatus.ABORTED, JobStatus.FAILED}),
    JobStatus.RUNNING: frozenset({JobStatus.QUEUED, *TERMINAL}),
    JobStatus.SUCCEEDED: frozenset(),
    JobStatus.FAILED: frozenset(),
    JobStatus.ABORTED: frozenset(),
}

ErrorType = Literal[
    "invalid_request",
    "invalid_image",
    "model_error",
    "out_of_memory",
    "upload_failed",
    "deadline_exceeded",
    "worker_lost",
    "internal",
]
Stage = Literal["queued", "loading", "encoding", "denoising", "decoding", "uploading"]


def rfc3339(moment: datetime) -> str:
    """UTC with milliseconds, as every time in the contract: `2026-01-31T12:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Timestamp = Annotated[datetime, PlainSerializer(rfc3339, return_type=str)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Progress(_Record):
    #: Where it is now.
    stage: Stage = "queued"
    #: Denoising steps done, of `num_steps`.
    step: int = 0
    #: Of the whole job.
    num_steps: int = 0
    #: 0 to 1 over the whole job, uploads included.
    fraction: float = 0.0
    #: Jobs of the same model that go first; 0 is next. Only while queued.
    queue_position: int | None = None
    #: Seconds until the result, as far as measured step times tell.
    eta_s: float | None = None
    #: What it waits for, in words; null while it gets on.
    detail: str | None = None


class Output(_Record):
    #: `s3://bucket/key`; `/v1/jobs/{id}/outputs/{n}` redirects to a link.
    uri: str
    #: As the object has it.
    content_type: str
    #: Pixels; null for sounds.
    width: int | None = None
    #: Pixels; null for sounds.
    height: int | None = None
    #: Of a video.
    num_frames: int | None = None
    #: Of a video or a sound.
    duration_s: float | None = None
    #: That alone makes this output again.
    seed: int
    #: Of the object.
    size_bytes: int
    #: Of the object, in hexadecimal.
    sha256: str


class JobError(_Record):
    #: For programs.
    type: ErrorType
    #: For people; names the field of a wrong request.
    message: str
    #: Whether another attempt may do better.
    retryable: bool = False
    #: The attempt that failed.
    attempt: int = 0


class JobMetrics(_Record):
    #: Until the device began with it.
    queue_ms: float | None = None
    #: Inputs fetched and decoded, texts encoded.
    preprocess_ms: float | None = None
    #: All steps.
    denoise_ms: float | None = None
    #: Latents to pixels.
    decode_ms: float | None = None
    #: Encoded, stored and verified.
    upload_ms: float | None = None
    #: From acceptance to the end of the last attempt.
    total_ms: float | None = None
    #: Mean number of rows that shared the forward passes of this job.
    batch_size_mean: float | None = None
    #: This job's share of the device's time.
    device_seconds: float | None = None


class Batching(_Record):
    """Whose company an attempt had on the device, as its engine counted."""

    mode: str
    #: Mean and largest number of rows in the forwards or batches that its rows were in.
    rows_mean: float
    rows_max: int
    #: Parameters in which jobs differed that were there at the same time and could not share with it.
    apart: tuple[str, ...] = ()
    #: Jobs of the same tenant that shared forwards or batches with it, up to eight.
    mates: tuple[str, ...] = ()


class Job(_Record):
    """One submission and everything that is known of it."""

    #: A ULID, or the client's own.
    id: str
    #: docs/states.md has the whole machine.
    status: JobStatus
    #: Resolved: every default and the seed filled in.
    request: GenerationRequest
    #: The dead letter of which this job is the retry.
    retry_of: str | None = None
    #: For whom it was submitted.
    tenant: str = DEFAULT_TENANT
    #: How far it is.
    progress: Progress = Progress()
    #: Somebody asked for its end, which comes at its next step. False again once it has ended, whichever way.
    abort_requested: bool = False
    #: Grows with each claim; the fencing token of that run. 0: never claimed.
    attempt: int = 0
    #: That runs it, or ran it last.
    worker: str | None = None
    #: UTC, RFC 3339, as every time here.
    created_at: Timestamp
    #: Of the last attempt.
    started_at: Timestamp | None = None
    #: When it ended.
    finished_at: Timestamp | None = None
    #: What was stored, in the order of the seeds.
    outputs: tuple[Output, ...] = ()
    #: Why it failed.
    error: JobError | None = None
    #: One for each failed or lost attempt.
    errors: tuple[JobError, ...] = ()
    #: What was changed or left out, for instance: rotated, alpha flattened, image resized, prompt truncated at a token.
    warnings: tuple[str, ...] = ()
    #: What it took.
    metrics: JobMetrics = JobMetrics()

    def to_json(self) -> dict[str, Any]:
        """The shape of the contract, ready for `json.dumps`."""
        return self.model_dump(mode="json")

"""What an operator sees of a dead letter: the job, and what each failed attempt left behind. Pure records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from tasks.errors import InvalidRequest
from tasks.job import ErrorType, Job, JobError, Timestamp
from tasks.job_codec import moment

#: A hundred years; ages are kept in milliseconds, which have to stay whole numbers.
MAX_AGE_S = 3_155_760_000.0


class Fault(BaseModel):
    """One failed or lost attempt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attempt: int
    worker: str | None = None
    failed_at: Timestamp
    type: ErrorType
    message: str
    #: Python's, without secrets and at most `tasks.redaction.MAX_TRACEBACK` characters; None: there was none.
    traceback: str | None = None


class DeadLetter(BaseModel):
    """A failed job that is kept for an operator."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    died_at: Timestamp
    job: Job
    #: The last ten, oldest first. Empty in a list of letters.
    faults: tuple[Fault, ...] = ()

    def to_json(self, *, tracebacks: bool = False) -> dict[str, Any]:
        hidden = None if tracebacks else {"faults": {"__all__": {"traceback"}}}
        return self.model_dump(mode="json", exclude=hidden)


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters; None: any. An age counts from the moment at which the job died. Raises `InvalidRequest`."""

    model: str | None = None
    error_type: str | None = None
    older_than_s: float | None = None
    newer_than_s: float | None = None

    def __post_init__(self) -> None:
        for name, age_s in (("older_than_s", self.older_than_s), ("newer_than_s", self.newer_than_s)):
            if age_s is not None and not 0 <= age_s <= MAX_AGE_S:
                raise InvalidRequest(name, f"is 0 to {MAX_AGE_S:.0f} seconds")

    def admits(self, job: Job, age_ms: int) -> bool:
        return (
            self.model in (None, job.request.model)
            and (self.error_type is None or (job.error is not None and job.error.type == self.error_type))
            and (self.older_than_s is None or age_ms >= int(self.older_than_s * 1000))
            and (self.newer_than_s is None or age_ms <= int(self.newer_than_s * 1000))
        )


ANY_LETTER = LetterFilter()


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    letters: Sequence[DeadLetter]
    #: Pass it to the next call; None: this was the last page.
    cursor: str | None


def letter_of(job: Job, died_at: datetime, faults: Sequence[str] = ()) -> DeadLetter:
    """`faults`: as the store keeps them, JSON of {attempt, worker, at, traceback}: one for each of its last errors."""
    its_errors = job.errors[-len(faults) :] if faults else ()
    found = [_fault(json.loads(fault), error) for fault, error in zip(faults, its_errors, strict=True)]
    return DeadLetter(id=job.id, died_at=died_at, job=job, faults=tuple(found))


def _fault(fault: Mapping[str, Any], error: JobError) -> Fault:
    failed_at = moment(fault["at"])
    assert failed_at is not None
    return Fault(
        attempt=fault["attempt"],
        worker=fault.get("worker"),
        failed_at=failed_at,
        type=error.type,
        message=error.message,
        traceback=fault.get("traceback"),
    )


def parse_cursor(cursor: str | None) -> tuple[int, str] | None:
    """When and which. Raises `InvalidRequest` for what no page ever gave."""
    if cursor is None:
        return None
    died, dash, job_id = cursor.partition("-")
    if not (dash and job_id and died.isascii() and died.isdigit() and len(died) <= 16):
        raise InvalidRequest("cursor", "is not one that a page gave")
    return int(died), job_id

"""What is to become of a job after an attempt, as data. Pure; `worker.generate` writes it down."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tasks.job import Batching, JobError, JobMetrics, JobStatus
from tasks.redaction import mask
from tasks.store import Outcome
from worker.attempt import Attempt, Stop


@dataclass(frozen=True, slots=True)
class Finish:
    """The attempt ends the job."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed; another may do better."""

    error: JobError
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The job is as good as new; another node takes it."""


@dataclass(frozen=True, slots=True)
class LetGo:
    """The lease is lost: somebody else settles it."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """The device broke under it, maybe by its doing: its lease runs out, which the store counts as a crash."""


Verdict = Finish | Retry | GiveBack | LetGo | Abandon


def stopped(reason: Stop) -> Verdict:
    match reason:
        case Stop.LOST:
            return LetGo()
        case Stop.ABORT:
            return Finish(Outcome(JobStatus.ABORTED))
        case Stop.DRAIN:
            return GiveBack()


def attempt_error(attempt: Attempt, kind: str, message: str, *, retryable: bool) -> JobError:
    return JobError.model_validate(
        {"type": kind, "message": mask(message)[:2000], "retryable": retryable, "attempt": attempt.number}
    )


def failed(attempt: Attempt, kind: str, message: str, *, retryable: bool = False, traceback: str = "") -> Finish:
    """`retryable` is for the producer: whether the same request may succeed if it is sent again."""
    error = attempt_error(attempt, kind, message, retryable=retryable)
    return Finish(Outcome(JobStatus.FAILED, error=error, traceback=traceback))


def accounted(verdict: Verdict, metrics: JobMetrics, batching: Batching | None) -> Verdict:
    """An end that does not say yet what it took says so."""
    if not isinstance(verdict, Finish) or verdict.outcome.metrics != JobMetrics():
        return verdict
    return Finish(replace(verdict.outcome, metrics=metrics, batching=batching))

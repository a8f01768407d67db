"""What can go wrong on the producer side, as types. Each carries what a caller needs to answer its own user."""

from __future__ import annotations

from collections.abc import Sequence


class SafelightError(Exception):
    """Root of every error that Safelight raises on purpose."""


class InvalidRequest(SafelightError, ValueError):
    """A field of a request is not acceptable; `field` names it (dotted for nested ones)."""

    def __init__(self, field: str, message: str, *, error_type: str = "invalid_request") -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message
        self.error_type = error_type


class UnknownJob(SafelightError, LookupError):
    """No record of this job: it never existed, or its result has expired."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job {job_id!r} (never submitted here, or its result has expired)")
        self.job_id = job_id


class UnknownDeadLetter(SafelightError, LookupError):
    """No dead letter of this id: seen to already, expired, or never one."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no dead letter {job_id!r} (seen to already, expired, or never one)")
        self.job_id = job_id


class UnknownWebhook(SafelightError, LookupError):
    """No delivery of this job's webhook was given up, or somebody has seen to it."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no webhook of job {job_id!r} was given up (or it has been seen to)")
        self.job_id = job_id


class UnknownWorker(SafelightError, LookupError):
    """No live worker of this name; `live` has the names of those there are."""

    def __init__(self, name: str, live: Sequence[str]) -> None:
        others = f"live are: {', '.join(live)}" if live else "no worker is up"
        super().__init__(f"no live worker {name!r}; {others}")
        self.name = name
        self.live = tuple(live)


class IdempotencyConflict(SafelightError):
    """The same idempotency key, or the same client-given id, came with another body."""


class QueueFull(SafelightError):
    """`MAX_QUEUED` jobs already wait, or as many rows as `whose` limit allows (`tenant acme`, `group g`).

    `retry_after_s` is a hint for the caller.
    """

    def __init__(self, max_queued: int, retry_after_s: float = 5.0, *, whose: str | None = None) -> None:
        full = f"the queue is full ({max_queued} jobs wait)"
        if whose is not None:
            full = f"the queue of {whose} is full (at most {max_queued} outputs may wait)"
        super().__init__(f"{full}; try again in {retry_after_s:.0f} s")
        self.retry_after_s = retry_after_s
        self.whose = whose


class RateLimited(SafelightError):
    """This key has sent what it may for now; after `retry_after_s` the same is taken."""

    def __init__(self, rate: str, retry_after_s: float) -> None:
        super().__init__(f"this key may send {rate} jobs; try again in {max(1.0, retry_after_s):.0f} s")
        self.retry_after_s = retry_after_s


class StoreUnavailable(SafelightError):
    """Redis or the object store cannot be reached; the message says which, where and what to try."""


class StoreFull(StoreUnavailable):
    """Redis is at its `maxmemory` and takes nothing new; `retry_after_s` is a hint for the caller."""

    retry_after_s = 30.0


class WaitTimeout(SafelightError, TimeoutError):
    """`wait` gave up; the job goes on."""


class ConfigError(SafelightError, ValueError):
    """A setting or a models file is wrong; the message names the entry."""

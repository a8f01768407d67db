"""One claimed run of a job inside this process, and the register of those that are live.

An attempt can be stopped from any thread; the reason that weighs most wins: lost over abort over drain.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import IntEnum

from engine import Checkpoint
from tasks.job import Job, JobMetrics
from tasks.job_codec import work_of
from tasks.logs import about
from tasks.tracing import NO_TRACING, Tracing
from worker.account import Times, job_metrics
from worker.parcel import Parcel

#: Attempts whose tenants are known after their end; their mates may run for long.
_MAX_REMEMBERED = 4096


class Stop(IntEnum):
    """Why an attempt must end early. A higher one overrules a lower one."""

    #: The node drains: give the job back.
    DRAIN = 1
    #: Somebody wants the job aborted.
    ABORT = 2
    #: The lease is gone: write nothing more.
    LOST = 3


class Stopped(Exception):
    """Raised by `Attempt.check` in the attempt's own thread."""

    def __init__(self, reason: Stop) -> None:
        super().__init__(reason.name.lower())
        self.reason = reason


class Late(Exception):
    """Raised by `Attempt.check_deadline`."""


class Attempt:
    """The job as claimed, the fencing token, and the wish to stop."""

    def __init__(self, job: Job, number: int, *, solo: bool, tracing: Tracing = NO_TRACING) -> None:
        self.job = job
        self.number = number
        self.tracing = tracing
        #: The traceparent that its log lines name.
        self.trace: str | None = None
        self.times = Times()
        #: Row-steps that it still needs.
        self.work_left: float = work_of(job.request)
        self.solo = solo
        self.claimed_at = time.monotonic()
        #: Set once the engine has put it into a batch; a drain lets it finish.
        self.started = False
        #: Set at a drain: what another node needs to go on.
        self.checkpoint: Checkpoint | None = None
        #: Set once it is rendered: makes a checkpoint of the finished outputs, which may wait for the store for long.
        self.seal: Callable[[], Checkpoint | None] | None = None
        #: Held while the checkpoint is made.
        self.leaving = threading.Lock()
        self.num_previews = 0
        #: Its finished outputs.
        self.parcel: Parcel | None = None
        #: It waits for the object store with its outputs on disk, and holds no place.
        self.is_set_aside = False
        self._when_set_aside: list[Callable[[], object]] = []
        self._reason: Stop | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._on_stop: Callable[[], object] | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.job.id, self.number

    @property
    def request_id(self) -> str:
        """The engine's name for it: a job that comes back to the same process is another request."""
        return f"{self.job.id}.{self.number}"

    def lines(self) -> AbstractContextManager[None]:
        """Log lines of this thread meanwhile are about it."""
        return about(job_id=self.job.id, attempt=self.number, model=self.job.request.model, trace=self.trace)

    @property
    def steps_left(self) -> float:
        """Of each of its rows, on average."""
        return self.work_left / self.job.request.num_outputs

    @property
    def reason(self) -> Stop | None:
        return self._reason

    @property
    def remaining_s(self) -> float | None:
        """Seconds left of the deadline: by the store's clock up to the claim, by this machine's since."""
        job = self.job
        if job.request.deadline_s is None:
            return None
        assert job.started_at is not None
        before_s = (job.started_at - job.created_at).total_seconds()
        return job.request.deadline_s - before_s - (time.monotonic() - self.claimed_at)

    def check_deadline(self) -> float | None:
        """`remaining_s`. Raises `Late` once the deadline has passed."""
        remaining_s = self.remaining_s
        if remaining_s is not None and remaining_s <= 0:
            raise Late
        return remaining_s

    def what_is_done(self) -> Checkpoint | None:
        """At a drain: of a request that was taken out of the engine, or that had ended and could not be stored."""
        with self.leaving:
            return self.checkpoint if self.seal is None else self.seal()

    def metrics(self) -> JobMetrics:
        """As far as they are known."""
        return job_metrics(self.job, self.claimed_at, self.times)

    def when_set_aside(self, call: Callable[[], object]) -> None:
        self._when_set_aside.append(call)

    def set_aside(self) -> None:
        """From its own thread: its pixels and whatever it keeps from others are let go."""
        self.is_set_aside = True
        self.seal = lambda: None
        for call in self._when_set_aside:
            call()
        self._when_set_aside.clear()

    def stop(self, reason: Stop) -> None:
        """Idempotent, from any thread."""
        with self._lock:
            if self._reason is not None and self._reason >= reason:
                return
            self._reason = reason
            on_stop = self._on_stop
        self._wake.set()
        if on_stop is not None:
            on_stop()

    def bind(self, on_stop: Callable[[], object]) -> None:
        """Call this at a stop; at once if it has come already."""
        with self._lock:
            self._on_stop = on_stop
            stopped = self._reason is not None
        if stopped:
            on_stop()

    def check(self) -> None:
        """Raises `Stopped` if the attempt must end."""
        if self._reason is not None:
            raise Stopped(self._reason)

    def sleep(self, seconds: float) -> None:
        """Wait, but no longer than until a stop. Raises `Stopped`."""
        self._wake.wait(seconds)
        self.check()


class Attempts:
    """The live attempts of this process by `(job id, number)`, and whose the last ones were. Thread-safe."""

    def __init__(self) -> None:
        self._live: dict[tuple[str, int], Attempt] = {}
        #: Of the newest by the engine's name for each.
        self._jobs: dict[str, tuple[str, str]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def holding(self, attempt: Attempt) -> Iterator[Attempt]:
        with self._lock:
            self._live[attempt.key] = attempt
            self._jobs[attempt.request_id] = attempt.job.id, attempt.job.tenant
            while len(self._jobs) > _MAX_REMEMBERED:
                del self._jobs[next(iter(self._jobs))]
        try:
            yield attempt
        finally:
            with self._lock:
                self._live.pop(attempt.key, None)

    def mates(self, attempt: Attempt) -> tuple[str, ...]:
        """Jobs that shared the device with it, as far as they are its own tenant's: others are none of its business."""
        met = () if attempt.times.engine is None else attempt.times.engine.mates
        with self._lock:
            found = [self._jobs[name] for name in met if name in self._jobs]
        return tuple(job_id for job_id, tenant in found if tenant == attempt.job.tenant)

    def live(self) -> tuple[Attempt, ...]:
        with self._lock:
            return tuple(self._live.values())

    def __len__(self) -> int:
        return len(self._live)

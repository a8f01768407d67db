"""Many jobs at once on a screen: bars on a terminal, lines elsewhere. Shows what it is given and asks nobody."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, Self

from tasks.cli.connect import note
from tasks.cli.output import outcome_of, shortened, times_of

if TYPE_CHECKING:
    from tasks.job import Job


#: More jobs than this are told as counts.
_MAX_LINES = 8
_COUNTS_S = 1.0
_ORDER = ("queued", "running", "succeeded", "failed", "aborted")


class Board(Protocol):
    """A context manager; `show` takes each new state of a job."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def show(self, job: Job) -> None: ...


def board_for(num_jobs: int, *, quiet: bool = False) -> Board:
    """Bars if stderr is a terminal; a line at each change of status if not; nothing if `quiet`."""
    if quiet:
        return SilentBoard()
    if not sys.stderr.isatty():
        return LineBoard(num_jobs)
    from tasks.cli.bars import BarBoard

    return BarBoard(num_jobs)


class SilentBoard:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def show(self, job: Job) -> None:
        pass


class LineBoard(SilentBoard):
    """For logs, without control codes: a line when a job's status changes, or of many jobs now and then the counts."""

    def __init__(self, num_jobs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._num_jobs = num_jobs
        self._clock = clock
        self._statuses: dict[str, str] = {}
        self._next_at = 0.0

    def show(self, job: Job) -> None:
        status = job.status.value
        if self._statuses.get(job.id) == status:
            return
        self._statuses[job.id] = status
        if self._num_jobs <= _MAX_LINES:
            note(f"{job.id}  {status:9}  {described(job)}".rstrip())
        elif len(self._statuses) == self._num_jobs and self._clock() >= self._next_at:
            self._next_at = self._clock() + _COUNTS_S
            counts = Counter(self._statuses.values())
            note(", ".join(f"{counts[each]} {each}" for each in _ORDER if counts[each]))


def stage_of(job: Job) -> str:
    return job.progress.stage if job.status.value == "running" else job.status.value


def described(job: Job) -> str:
    return times_of(job.metrics) if job.status.is_terminal and job.error is None else outcome_of(job)


def title_of(job: Job) -> str:
    return shortened(job.request.prompt, 34)

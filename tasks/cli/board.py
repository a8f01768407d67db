"""Many jobs at once: bars on a terminal, lines or JSON elsewhere. Shows what it is given and asks nobody."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, Self

from tasks.cli.connect import note
from tasks.cli.output import outcome_of, print_json

if TYPE_CHECKING:
    from tasks.cli.pictures.terminal import Protocol as PictureProtocol
    from tasks.job import Job
    from tasks.store import Event


#: More jobs than this are told as counts.
_MAX_LINES = 8
_COUNTS_S = 1.0
_ORDER = ("queued", "running", "succeeded", "failed", "aborted")


class Board(Protocol):
    """A context manager; `show` takes each new state of a job, with the events that led to it."""

    @property
    def tells_ends(self) -> bool:
        """Whether the result of each job has been said here, so that nobody need say it again."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def show(self, job: Job, events: Sequence[Event] = ()) -> None: ...


def board_for(num_jobs: int, *, pictures: PictureProtocol | None = None, tells_ends: bool = False) -> Board:
    """Bars if stderr is a terminal, with the results above them if `tells_ends` and stdout is one too; else lines."""
    if not sys.stderr.isatty():
        return LineBoard(num_jobs)
    from tasks.cli.bars import BarBoard

    return BarBoard(pictures=pictures, tells_ends=tells_ends and sys.stdout.isatty())


class SilentBoard:
    tells_ends = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def show(self, job: Job, events: Sequence[Event] = ()) -> None:
        pass


class JobBoard(SilentBoard):
    """JSON: each job as soon as it ends."""

    tells_ends = True

    def show(self, job: Job, events: Sequence[Event] = ()) -> None:
        if job.status.is_terminal:
            print_json(job.to_json())


class EventBoard(SilentBoard):
    """JSON: one event a line; `done` carries the whole job. Of a job that had ended before, only that."""

    tells_ends = True

    def __init__(self, *, previews: bool = True) -> None:
        self._hidden = {"done"} if previews else {"done", "preview"}

    def show(self, job: Job, events: Sequence[Event] = ()) -> None:
        for event in events:
            if event.type not in self._hidden:
                print_json({"event": event.type, "id": job.id, **event.data})
        if job.status.is_terminal:
            print_json({"event": "done", **job.to_json()})


class LineBoard(SilentBoard):
    """For logs, without control codes: a line when a job's status changes, or of many jobs now and then the counts.

    The end of a single job is left to who prints its result next.
    """

    def __init__(self, num_jobs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._num_jobs = num_jobs
        self._clock = clock
        self._statuses: dict[str, str] = {}
        self._next_at = 0.0

    def show(self, job: Job, events: Sequence[Event] = ()) -> None:
        status = job.status.value
        if self._statuses.get(job.id) == status:
            return
        self._statuses[job.id] = status
        if self._num_jobs == 1 and job.status.is_terminal:
            return
        if self._num_jobs <= _MAX_LINES:
            note(f"{job.id}  {status:9}  {outcome_of(job)}".rstrip())
        elif len(self._statuses) == self._num_jobs and self._clock() >= self._next_at:
            self._next_at = self._clock() + _COUNTS_S
            counts = Counter(self._statuses.values())
            note(", ".join(f"{counts[each]} {each}" for each in _ORDER if counts[each]))

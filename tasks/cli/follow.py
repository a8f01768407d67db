"""Follows jobs to their ends. Leaving early (Ctrl-C) leaves them running and says how to come back."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.cli.board import Board
from tasks.cli.connect import note
from tasks.errors import StoreUnavailable

if TYPE_CHECKING:
    from tasks.client import Client
    from tasks.job import Job
    from tasks.store import Event

#: Between looks at the events: what comes meanwhile is shown together.
_PAUSE_S = 0.1
_BLOCK_S = 0.5
#: Places in the queue move without an event, so that all records are read now and then.
_LOOK_S = 2.0
#: How long an outage of Redis may last before `watch` gives up; the jobs go on either way.
_PATIENCE_S = 30.0
#: Ids in words for a person; a hundred would push everything else off the screen.
_MAX_NAMED = 5


@dataclass(frozen=True)
class Seen:
    job: Job
    #: New since the job was seen last; of a job that had ended by the first look, none.
    events: tuple[Event, ...] = ()


def follow(
    client: Client, job_ids: Sequence[str], board: Board, *, aborts: bool = False, group: str | None = None
) -> list[Job]:
    """Show progress until every job has ended; the jobs as they ended, in the order of the ids.

    `aborts`: Ctrl-C ends the jobs, and the following goes on until they have ended. `group`: of all of them.
    """
    ends: dict[str, Job] = {}
    try:
        with board:
            _show(client, job_ids, board, ends, aborts=aborts)
    except KeyboardInterrupt:
        _say_goodbye([job_id for job_id in job_ids if job_id not in ends], group)
        raise
    return [ends[job_id] for job_id in dict.fromkeys(job_ids)]


def _show(client: Client, job_ids: Sequence[str], board: Board, ends: dict[str, Job], *, aborts: bool) -> None:
    try:
        for seen in sights(client, job_ids):
            board.show(seen.job, seen.events)
            if seen.job.status.is_terminal:
                ends[seen.job.id] = seen.job
    except KeyboardInterrupt:
        if not aborts:
            raise
        left = [job_id for job_id in job_ids if job_id not in ends]
        for job_id in left:
            client.abort(job_id)
        _show(client, left, board, ends, aborts=False)  # a second Ctrl-C leaves at once


def states(client: Client, job_ids: Sequence[str]) -> Iterator[Job]:
    """Each state of each job as it is seen, until all have ended. Raises as `sights` does."""
    return (seen.job for seen in sights(client, job_ids))


def sights(client: Client, job_ids: Sequence[str], clock: Callable[[], float] = time.monotonic) -> Iterator[Seen]:
    """Each job as it changes, until all have ended. Raises `UnknownJob`.

    An outage after the first answer is ridden out for a while before `StoreUnavailable`.
    """
    round_ = _Round(client, dict.fromkeys(job_ids, ""))
    reached_at, look_at = clock() - _PATIENCE_S, clock()
    while round_.after:
        try:
            if clock() >= look_at:
                round_.unread.update(dict.fromkeys(round_.after))
                look_at = clock() + _LOOK_S
            yield from round_.records()
            reached_at = clock()
            round_.listen()
        except StoreUnavailable:
            if clock() - reached_at > _PATIENCE_S:
                raise
        time.sleep(_PAUSE_S if round_.after else 0.0)


class _Round:
    """What is known of the jobs that are followed; an outage in the middle of a look loses nothing of it."""

    def __init__(self, client: Client, after: dict[str, str]) -> None:
        self._client = client
        #: Of each live job the event seen last; empty before the first look.
        self.after = after
        #: Jobs whose record is to be read, in order.
        self.unread: dict[str, None] = {}
        self._news: dict[str, list[Event]] = {}

    def records(self) -> Iterator[Seen]:
        for job_id in tuple(self.unread):
            job = self._client.get(job_id)
            is_first = not self.after[job_id]
            if job.status.is_terminal and not is_first:
                self._hear(job_id, self._client.store.events(job_id, after=self.after[job_id]))
            self.unread.pop(job_id)
            if job.status.is_terminal:
                del self.after[job_id]
            elif is_first:
                self.after[job_id] = "0"
            yield Seen(job, tuple(self._news.pop(job_id, ())))

    def listen(self) -> None:
        if not self.after:
            return
        for job_id, event in self._client.store.events_of(self.after, block_s=_BLOCK_S):
            self._hear(job_id, [event])
            self.unread[job_id] = None

    def _hear(self, job_id: str, events: Sequence[Event]) -> None:
        for event in events:
            self.after[job_id] = event.id
            self._news.setdefault(job_id, []).append(event)


def _say_goodbye(job_ids: Sequence[str], group: str | None) -> None:
    """Commands to paste: of many jobs none that names each."""
    if not job_ids:
        return
    is_one = len(job_ids) == 1
    named = shlex.join(job_ids) if len(job_ids) <= _MAX_NAMED else ""
    if not named and group is not None:
        named = f"--group {shlex.quote(group)}"
    which = "the job goes on" if is_one else f"{len(job_ids)} jobs go on"
    note(f"\n{which}; to come back: safelight watch {named or '--all'}")
    if named:
        note(f"to end {'it' if is_one else 'them'} instead: safelight abort {named}")

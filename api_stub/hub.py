"""One reader of Redis for the event streams of this process: a thousand clients cost one blocked read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from tasks.event_codec import event_order
from tasks.store import Event

#: Streams of one read; more have readers of their own.
MAX_STREAMS = 500
#: One blocked read: how long a newcomer waits until its stream is part of it.
SLICE_S = 0.2
#: Pause after a read that found something: what comes meanwhile is found by one read.
GATHER_S = 0.02
#: Events that a slow client may leave unread here; beyond, it reads the store itself.
MAX_UNREAD = 256


class Source(Protocol):
    """What the hub needs of a store."""

    async def events_of(self, after: Mapping[str, str], *, block_s: float) -> Sequence[tuple[str, Event]]: ...


class Follower:
    """One client's view of one job, from the event `after` on."""

    def __init__(self, after: str) -> None:
        self.after = after
        self._order = event_order(after)
        self._has_missed = False
        self._unread: list[Event] = []
        self._error: Exception | None = None
        self._changed = asyncio.Event()

    def order(self) -> tuple[int, int]:
        return self._order

    def hear(self, event: Event) -> None:
        order = event_order(event.id)
        if order <= self._order:
            return
        self.after, self._order = event.id, order
        if len(self._unread) < MAX_UNREAD:
            self._unread.append(event)
        else:
            self._has_missed = True
        self._changed.set()

    def has_missed(self) -> bool:
        """Whether events were left out since the last call: the store has them."""
        missed, self._has_missed = self._has_missed, False
        return missed

    def break_off(self, error: Exception) -> None:
        self._error = error
        self._changed.set()

    async def next(self, timeout_s: float) -> list[Event]:
        """What has come since the last call, waiting for the first; none if time is over. Raises what ended the reader,
        `StoreUnavailable` as a rule."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        self._changed.clear()
        if self._error is not None:
            raise self._error
        found, self._unread = self._unread, []
        return found


class EventHub:
    """For one event loop. Readers run while anybody follows."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._readers: list[_Reader] = []

    @contextlib.asynccontextmanager
    async def follow(self, job_id: str, after: str) -> AsyncIterator[Follower]:
        """Events of the job after `after`, which the caller has seen."""
        follower = Follower(after)
        reader = self._reader_for(job_id)
        reader.add(job_id, follower)
        try:
            yield follower
        finally:
            reader.remove(job_id, follower)
            self._readers = [one for one in self._readers if one.followers]

    async def close(self) -> None:
        for reader in self._readers:
            await reader.stop()

    def _reader_for(self, job_id: str) -> _Reader:
        for reader in self._readers:
            if job_id in reader.followers or len(reader.followers) < MAX_STREAMS:
                return reader
        self._readers.append(_Reader(self._source))
        return self._readers[-1]


class _Reader:
    """Reads the streams of up to `MAX_STREAMS` jobs, and tells those who follow them."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.followers: dict[str, list[Follower]] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, job_id: str, follower: Follower) -> None:
        self.followers.setdefault(job_id, []).append(follower)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def remove(self, job_id: str, follower: Follower) -> None:
        left = [one for one in self.followers.get(job_id, ()) if one is not follower]
        if left:
            self.followers[job_id] = left
        else:
            self.followers.pop(job_id, None)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        try:
            while self.followers:
                if await self._read():
                    await asyncio.sleep(GATHER_S)
        except Exception as error:  # theirs to judge; a stream that hears nothing any more must not go on
            for follower in [one for each in self.followers.values() for one in each]:
                follower.break_off(error)

    async def _read(self) -> bool:
        """Whether anything was new. Each stream is read on from where the last of its followers stands."""
        after = {job_id: min(some, key=Follower.order).after for job_id, some in self.followers.items()}
        found = await self._source.events_of(after, block_s=SLICE_S)
        for job_id, event in found:
            for follower in self.followers.get(job_id, ()):
                follower.hear(event)
        return bool(found)

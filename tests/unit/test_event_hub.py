"""The hub alone: who hears what, who missed something, and what an outage does. A list stands for the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from api_stub.hub import MAX_UNREAD, EventHub
from tasks.errors import StoreUnavailable
from tasks.event_codec import event_order
from tasks.store import Event


class Told:
    """A store's streams: `tell` adds to one, `events_of` waits a moment at the most."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Event]] = []
        self.reads: list[set[str]] = []
        self.is_away = False

    def tell(self, job_id: str, number: int) -> None:
        self.events.append((job_id, Event(f"{number}-0", "progress", {"step": number})))

    async def events_of(self, after: Mapping[str, str], *, block_s: float) -> Sequence[tuple[str, Event]]:
        if self.is_away:
            raise StoreUnavailable("away")
        self.reads.append(set(after))
        await asyncio.sleep(0.001)
        return [(i, e) for i, e in self.events if i in after and event_order(e.id) > event_order(after[i])]


def ids(events: Sequence[Event]) -> list[str]:
    return [event.id for event in events]


async def all_of(hub: EventHub, told: Told) -> None:
    async with hub.follow("a", "0") as one, hub.follow("a", "1-0") as other, hub.follow("b", "0") as alien:
        told.tell("a", 1)
        told.tell("a", 2)
        assert ids(await one.next(5)) == ["1-0", "2-0"]
        assert ids(await other.next(5)) == ["2-0"]
        assert await alien.next(0.01) == []
        told.tell("b", 1)
        assert ids(await alien.next(5)) == ["1-0"]
        assert not one.has_missed()


def test_each_client_hears_its_own_job_from_where_it_stands() -> None:
    told = Told()
    asyncio.run(all_of(EventHub(told), told))
    assert {"a", "b"} in told.reads, "one read serves all"


def test_a_slow_client_is_told_that_it_missed_something() -> None:
    async def run() -> None:
        told = Told()
        async with EventHub(told).follow("a", "0") as follower:
            for number in range(1, MAX_UNREAD + 3):
                told.tell("a", number)
            assert len(await follower.next(5)) == MAX_UNREAD
            assert follower.has_missed() and not follower.has_missed()

    asyncio.run(run())


def test_an_outage_reaches_everybody_and_a_newcomer_starts_a_new_reader() -> None:
    async def run() -> None:
        told = Told()
        hub = EventHub(told)
        async with hub.follow("a", "0") as follower:
            told.is_away = True
            with pytest.raises(StoreUnavailable):
                await follower.next(5)
        told.is_away = False
        told.tell("a", 1)
        async with hub.follow("a", "0") as follower:
            assert ids(await follower.next(5)) == ["1-0"]
        await hub.close()

    asyncio.run(run())


def test_readers_end_with_their_followers() -> None:
    async def run() -> None:
        told = Told()
        async with EventHub(told).follow("a", "0"):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        num_reads = len(told.reads)
        assert num_reads
        await asyncio.sleep(0.01)
        assert len(told.reads) == num_reads

    asyncio.run(run())

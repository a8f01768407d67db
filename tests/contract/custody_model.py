"""All interleavings of two workers and two jobs on the store in memory, breadth first, each state once.

States that differ only in the names of workers, or of jobs that are alike, or in the time of day, are one.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from tasks.job import Job, JobStatus
from tasks.memory import MemoryJobStore
from tasks.memory_records import Entry
from tasks.store import Claimed
from tests.contract.custody_rules import check_move, check_state, entries, records
from tests.contract.custody_world import JOBS, MAX_ATTEMPTS, MODEL, WORKERS, Action, Setup, World
from tests.contract.stores import LEASE_S, Clock, succeeded


class QuickStore(MemoryJobStore):
    """The store in memory without the answers that nobody here looks at: a `Job` costs most of a call's time."""

    def _read(self, entry: Entry) -> Job:
        return _Answered(entry.job_id, entry.status)  # type: ignore[return-value]


class _Answered(NamedTuple):
    id: str
    status: JobStatus


_CRASH = (Action("claim", "v", "a"), Action("crash", "v"), Action("tick"), Action("tick"), Action("reap"))
#: From the empty world, and from one with a job in quarantine.
BEGINNINGS = ((), (Action("submit", job="a"), Action("submit", job="b"), *_CRASH, *_CRASH))


class Explorer:
    """All states within as many actions of the beginnings as there were calls of `deepen`. `paths` leads to each."""

    def __init__(self, setup: Setup) -> None:
        self.paths: list[tuple[Action, ...]] = []
        self.num_transitions = 0
        self._seen: set[tuple[Any, ...]] = set()
        self._frontier: list[tuple[World, tuple[Action, ...]]] = []
        for path in BEGINNINGS:
            clock = Clock()
            world = World(QuickStore(clock=clock, quotas=setup.quotas), clock, setup)
            for action in path:
                world.do(action)
            self._arrive(world, path, self._frontier)

    def _arrive(self, world: World, path: tuple[Action, ...], frontier: list[tuple[World, tuple[Action, ...]]]) -> None:
        key = _key(world)
        if key not in self._seen:
            check_state(world)
            self._seen.add(key)
            self.paths.append(path)
            frontier.append((world, path))

    def deepen(self) -> None:
        """One action further."""
        frontier: list[tuple[World, tuple[Action, ...]]] = []
        for world, path in self._frontier:
            for action in world.actions():
                after = _copied(world)
                answer = after.do(action)
                self.num_transitions += 1
                try:
                    check_move(world, action, answer, after)
                    self._arrive(after, (*path, action), frontier)
                except AssertionError as error:
                    raise AssertionError(f"{error} after {[*path, action]}") from error
        self._frontier = frontier

    def end_calmly(self, every: int) -> None:
        """From every n-th state at the rim: two leases later one worker brings each job to its end."""
        for world, path in self._frontier[::every]:
            world = _copied(world)
            world.clock.advance(2 * LEASE_S)
            world.store.reap(MAX_ATTEMPTS)
            for _ in JOBS:
                claimed = world.store.take(MODEL, JOBS[0], "calm", LEASE_S)
                if isinstance(claimed, Claimed):
                    world.store.finish(claimed.job.id, claimed.attempt, succeeded())
            for entry in entries(world).values():
                assert entry.status.is_terminal, f"{entry.job_id} does not end after {path}"
            check_state(world)


def _copied(world: World) -> World:
    clock = Clock(world.clock.ms)
    store: Any = copy.copy(world.store)
    twin = store._records = copy.copy(records(world))
    store._picks = copy.copy(store._picks)
    store._picks._records = twin
    twin.now = store._now = clock
    twin.abort_wishes = store.abort_wishes = set(twin.abort_wishes)
    twin.pace_s = dict(twin.pace_s)
    twin._entries = {job_id: _copied_entry(entry) for job_id, entry in twin._entries.items()}
    return World(store, clock, world.setup, {worker: dict(held) for worker, held in world.held.items()})


def _copied_entry(entry: Entry) -> Entry:
    twin = copy.copy(entry)
    twin.record = dict(entry.record)
    return twin


def _facts(world: World, job_id: str) -> tuple[Any, ...]:
    """What decides how a job goes on; times as distances from now."""
    entry = entries(world).get(job_id)
    if entry is None:
        return ()
    lease = max(0, entry.lease_ms - world.clock.ms) if entry.status is JobStatus.RUNNING else -1
    counters = entry.num_errors, entry.crashes, entry.is_solo, entry.solo_crashes, entry.released
    is_first = all(entry.stamp <= other.stamp for other in entries(world).values())
    wanted = job_id in records(world).abort_wishes
    return entry.status.value, entry.attempt, lease, counters, wanted, is_first, _turn(world, entry.new.tenant)


def _turn(world: World, tenant: str) -> tuple[float | None, ...]:
    """How far its tenant is ahead of the clock. One tenant alone is always next."""
    if not world.setup.is_limited:
        return ()
    tags = records(world).tags_of(MODEL)
    ahead = (tags.waiting.get(tenant), tags.rested.get(tenant))
    return tuple(None if tag is None else tag - tags.clock for tag in ahead)


def _key(world: World) -> tuple[Any, ...]:
    facts = {job_id: _facts(world, job_id) for job_id in JOBS}
    named = []
    for first, second in (WORKERS, WORKERS[::-1]):
        held = world.held[first], world.held[second]
        jobs = [repr((facts[each], held[0].get(each), held[1].get(each))) for each in JOBS]
        named.append(tuple(jobs if world.setup.is_limited else sorted(jobs)))
    return min(named), world.store._picks.num_parked(MODEL)  # type: ignore[attr-defined]

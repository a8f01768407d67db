"""Two workers and two jobs on a store: every action that can happen to them, and what must hold after each.

`World` runs on any store. `Explorer` walks all interleavings on the one in memory, breadth first, each state once;
states that differ only in the names of workers or jobs, or in the time of day, are one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tasks.errors import SafelightError, UnknownJob
from tasks.job import TRANSITIONS, Job, JobStatus
from tasks.memory import MemoryJobStore
from tasks.memory_records import Entry
from tasks.store import Claimed, Created, JobStore, Lease, NewJob, NotClaimed, Written
from tasks.submission import new_job
from tests.contract.stores import LEASE_S, MODELS, Clock, failed, model_error, succeeded

WORKERS, JOBS = ("v", "w"), ("a", "b")
MAX_ATTEMPTS = 2
Verb = Literal[
    "submit", "claim", "renew", "tick", "reap", "finish", "finish unheard", "fail", "retry", "release", "isolate",
    "abort", "crash",
]  # fmt: skip
NEW: dict[str, NewJob] = {job_id: new_job({"prompt": "x", "seed": 7}, MODELS, job_id=job_id) for job_id in JOBS}


class Action(NamedTuple):
    verb: Verb
    worker: str = ""
    job: str = ""


#: Everything that needs no attempt in hand.
_FREE = (
    *(Action(verb, job=job_id) for verb in ("submit", "abort") for job_id in JOBS),  # type: ignore[arg-type]
    *(Action("claim", worker, job_id) for worker in WORKERS for job_id in JOBS),
    Action("tick"),
    Action("reap"),
)
_OF_A_HOLDER: tuple[Verb, ...] = ("finish", "finish unheard", "fail", "retry", "release", "isolate")


@dataclass
class World:
    """A store, its clock, and which attempts each worker believes to hold, rightly or not."""

    store: JobStore
    clock: Clock
    held: dict[str, dict[str, int]] = field(default_factory=lambda: {worker: {} for worker in WORKERS})

    def actions(self) -> Iterator[Action]:
        yield from _FREE
        for worker in WORKERS:
            if self.held[worker]:
                yield Action("renew", worker)
                yield Action("crash", worker)
            for job_id in self.held[worker]:
                yield from (Action(verb, worker, job_id) for verb in _OF_A_HOLDER)

    def do(self, action: Action) -> Any:
        """The store's answer, as something to compare."""
        verb, worker, job_id = action
        held = self.held.get(worker, {})
        if verb in _OF_A_HOLDER:
            return self._write(verb, held, job_id)
        match verb:
            case "submit":
                [answer] = self.store.create([NEW[job_id]])
                return answer.is_new if isinstance(answer, Created) else answer
            case "abort":
                return _or_error(lambda: self.store.abort(job_id).status)
            case "claim":
                claimed = self.store.claim(job_id, worker, LEASE_S)
                if isinstance(claimed, Claimed):
                    held[job_id] = claimed.attempt
                    return claimed.attempt, claimed.solo
                return claimed
            case "renew":
                answers = dict(self.store.renew(held, LEASE_S))
                self.held[worker] = {each: held[each] for each in held if answers[each] is not Lease.LOST}
                return answers
            case "reap":
                return list(self.store.reap(MAX_ATTEMPTS))
            case "tick":
                self.clock.advance(LEASE_S / 2)
            case "crash":
                held.clear()
        return None

    def _write(self, verb: Verb, held: dict[str, int], job_id: str) -> Any:
        attempt, store = held[job_id], self.store
        if verb not in ("finish unheard", "isolate"):
            del held[job_id]
        match verb:
            case "finish" | "finish unheard":
                return store.finish(job_id, attempt, succeeded())
            case "fail":
                return store.finish(job_id, attempt, failed())
            case "retry":
                return store.retry(job_id, attempt, model_error(), MAX_ATTEMPTS)
            case "release":
                return store.release(job_id, attempt)
            case _:
                return store.isolate(job_id, attempt)


def _or_error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except SafelightError as error:
        return type(error)


class QuickStore(MemoryJobStore):
    """The store in memory without the answers that nobody here looks at: a `Job` costs most of a call's time."""

    def _read(self, entry: Entry) -> Job:
        return _Answered(entry.status)  # type: ignore[return-value]


class _Answered(NamedTuple):
    status: JobStatus


_CRASH = (Action("claim", "v", "a"), Action("crash", "v"), Action("tick"), Action("tick"), Action("reap"))
#: From the empty world, and from one with a job in quarantine.
BEGINNINGS = ((), (Action("submit", job="a"), Action("submit", job="b"), *_CRASH, *_CRASH))


class Explorer:
    """All states within as many actions of the beginnings as there were calls of `deepen`. `paths` leads to each."""

    def __init__(self) -> None:
        self.paths: list[tuple[Action, ...]] = []
        self.num_transitions = 0
        self._seen: set[tuple[Any, ...]] = set()
        self._frontier: list[tuple[World, tuple[Action, ...]]] = []
        for path in BEGINNINGS:
            clock = Clock()
            world = World(QuickStore(clock=clock), clock)
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
            for entry in _entries(world).values():
                claimed = world.store.claim(entry.job_id, "calm", LEASE_S)
                if isinstance(claimed, Claimed):
                    world.store.finish(entry.job_id, claimed.attempt, succeeded())
                assert entry.status.is_terminal, f"{entry.job_id} does not end after {path}"
            check_state(world)


def _records(world: World) -> Any:
    return world.store._records  # type: ignore[attr-defined]


def _entries(world: World) -> dict[str, Entry]:
    return _records(world)._entries  # type: ignore[no-any-return]


def _copied(world: World) -> World:
    clock = Clock(world.clock.ms)
    store, records = copy.copy(world.store), copy.copy(_records(world))
    records.now = store._now = clock  # type: ignore[attr-defined]
    store._records = records  # type: ignore[attr-defined]
    records.abort_wishes = store.abort_wishes = set(records.abort_wishes)  # type: ignore[attr-defined]
    records.pace_s = dict(records.pace_s)
    records._entries = {job_id: _copied_entry(entry) for job_id, entry in records._entries.items()}
    return World(store, clock, {worker: dict(held) for worker, held in world.held.items()})


def _copied_entry(entry: Entry) -> Entry:
    twin = copy.copy(entry)
    twin.record = dict(entry.record)
    return twin


def _facts(world: World, job_id: str) -> tuple[Any, ...]:
    """What decides how a job goes on; times as distances from now."""
    entry = _entries(world).get(job_id)
    if entry is None:
        return ()
    lease = max(0, entry.lease_ms - world.clock.ms) if entry.status is JobStatus.RUNNING else -1
    counters = entry.num_errors, entry.crashes, entry.is_solo, entry.solo_crashes, entry.released
    return entry.status.value, entry.attempt, lease, counters, job_id in _records(world).abort_wishes


def _key(world: World) -> tuple[Any, ...]:
    facts = {job_id: _facts(world, job_id) for job_id in JOBS}
    named = []
    for first, second in (WORKERS, WORKERS[::-1]):
        held = world.held[first], world.held[second]
        named.append(tuple(sorted((repr((facts[each], held[0].get(each), held[1].get(each)))) for each in JOBS)))
    return min(named)


# -- what must hold ---------------------------------------------------------------------------------------------


def check_state(world: World) -> None:
    """Custody and leases of every job, as they stand."""
    wishes = _records(world).abort_wishes
    for job_id, entry in _entries(world).items():
        is_running = entry.status is JobStatus.RUNNING
        holders = [worker for worker in WORKERS if world.held[worker].get(job_id) == entry.attempt]
        assert len(holders) <= 1, f"{job_id}: one attempt in two hands"
        assert ("worker" in entry.record) >= is_running, f"{job_id}: runs nowhere"
        assert entry.status is not JobStatus.QUEUED or "worker" not in entry.record, f"{job_id}: queued, with a worker"
        assert job_id not in wishes or is_running, f"{job_id}: a wish to abort outlives the run"
        kinds = [event.type for event in entry.events]
        assert kinds.count("done") == entry.status.is_terminal, f"{job_id}: {kinds.count('done')} ends"
        assert entry.attempt - entry.released <= 10 + MAX_ATTEMPTS, f"{job_id}: too many attempts"
        assert all(number <= entry.attempt for held in world.held.values() if (number := held.get(job_id, 0)))


def check_move(before: World, action: Action, answer: Any, after: World) -> None:
    """That the action did what its answer says, by the table, and to nobody else."""
    for job_id in JOBS:
        old, new = _entries(before).get(job_id), _entries(after).get(job_id)
        if old is None or new is None:
            assert new is None or action == Action("submit", job=job_id), f"{job_id} came from nowhere"
            continue
        changed = _facts_of_record(before, old) != _facts_of_record(after, new)
        may_change = action.job in ("", job_id) and action.verb not in ("tick", "crash")
        assert not changed or may_change, f"{action} reached {job_id}"
        assert new.status is old.status or new.status in TRANSITIONS[old.status], f"{old.status} -> {new.status}"
        assert not (changed and old.status.is_terminal), f"{job_id} changed after its end"
        assert new.attempt - old.attempt == (action.verb == "claim" and isinstance(answer, tuple) and changed)
        if action.verb == "reap":
            lapsed = old.status is JobStatus.RUNNING and old.lease_ms <= before.clock.ms
            assert changed == lapsed == (new.status is not old.status), f"reap took {job_id}, lapsed: {lapsed}"
        if action.job == job_id:
            _check_own(before, action, answer, old, new, changed)
    if action.verb == "abort" and action.job not in _entries(before):
        assert answer is UnknownJob


def _facts_of_record(world: World, entry: Entry) -> tuple[Any, ...]:
    return (
        entry.status, entry.attempt, entry.lease_ms, entry.record, entry.is_solo, len(entry.events),
        entry.job_id in _records(world).abort_wishes,
    )  # fmt: skip


def _check_own(before: World, action: Action, answer: Any, old: Entry, new: Entry, changed: bool) -> None:
    verb = action.verb
    if verb == "submit":
        assert answer is False and not changed, "a second submit is the same job"
    elif verb == "abort":
        assert old.status is not JobStatus.QUEUED or new.status is JobStatus.ABORTED
        assert old.status is not JobStatus.RUNNING or new.status is JobStatus.RUNNING
    elif verb == "claim":
        assert isinstance(answer, NotClaimed) == (old.status is not JobStatus.QUEUED), f"claim: {answer}"
        assert changed == (old.status is JobStatus.QUEUED)
    else:
        attempt = before.held[action.worker][action.job]
        is_mine = old.status is JobStatus.RUNNING and old.attempt == attempt
        end = JobStatus.FAILED if verb == "fail" else JobStatus.SUCCEEDED
        is_again = verb in ("finish", "finish unheard", "fail") and (old.status, old.attempt) == (end, attempt)
        refused = answer in (Written.FENCED, Written.TERMINAL)
        assert refused != (is_mine or is_again), f"{action} answered {answer}"
        assert not changed or is_mine, f"{action} changed what is not its own"
        assert changed or not is_mine or verb == "isolate", f"{action} changed nothing"

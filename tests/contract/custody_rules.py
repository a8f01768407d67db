"""What must hold in every state that two workers can bring two jobs to, and after every action."""

from __future__ import annotations

from typing import Any

from tasks.errors import UnknownJob
from tasks.job import TRANSITIONS, JobStatus
from tasks.memory_records import Entry
from tasks.store import NotClaimed, Written
from tests.contract.custody_world import JOBS, MAX_ATTEMPTS, MODEL, WORKERS, Action, World


def records(world: World) -> Any:
    return world.store._records  # type: ignore[attr-defined]


def entries(world: World) -> dict[str, Entry]:
    return records(world)._entries  # type: ignore[no-any-return]


def waiting(world: World) -> list[Entry]:
    return [entry for entry in entries(world).values() if entry.status is JobStatus.QUEUED]


def some_run(world: World) -> bool:
    return any(entry.status is JobStatus.RUNNING for entry in entries(world).values())


def check_state(world: World) -> None:
    """Custody and leases of every job, as they stand."""
    wishes = records(world).abort_wishes
    for job_id, entry in entries(world).items():
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
    tags = records(world).tags_of(MODEL)
    assert tags.waiting.keys() == {entry.new.tenant for entry in waiting(world)}, "a tenant waits without a job"
    assert tags.waiting or not (tags.rested or tags.clock), "a clock goes on though nobody waits"


def check_move(before: World, action: Action, answer: Any, after: World) -> None:
    """That the action did what its answer says, by the table, and to nobody else."""
    for job_id in JOBS:
        old, new = entries(before).get(job_id), entries(after).get(job_id)
        if old is None or new is None:
            assert new is None or action == Action("submit", job=job_id), f"{job_id} came from nowhere"
            continue
        changed = _facts_of_record(before, old) != _facts_of_record(after, new)
        assert not changed or _may_reach(action, answer, job_id), f"{action} reached {job_id}"
        assert new.status is old.status or new.status in TRANSITIONS[old.status], f"{old.status} -> {new.status}"
        assert not (changed and old.status.is_terminal), f"{job_id} changed after its end"
        is_claim = action.verb in ("claim", "take") and isinstance(answer, tuple)
        assert new.attempt - old.attempt == (is_claim and changed)
        if action.verb == "reap":
            lapsed = old.status is JobStatus.RUNNING and old.lease_ms <= before.clock.ms
            assert changed == lapsed == (new.status is not old.status), f"reap took {job_id}, lapsed: {lapsed}"
        if action.job == job_id:
            _check_own(before, action, answer, old, new, changed)
    if action.verb == "abort" and action.job not in entries(before):
        assert answer is UnknownJob
    if action.verb in ("take", "wake"):
        _check_turn(before, action, answer, after)


def _may_reach(action: Action, answer: Any, job_id: str) -> bool:
    """Whether the action may change the job."""
    if action.verb == "take":
        return isinstance(answer, tuple) and answer[0] == job_id
    return action.job in ("", job_id) and action.verb not in ("tick", "crash", "wake")


def _check_turn(before: World, action: Action, answer: Any, after: World) -> None:
    """A turn is worth one job that may run, the oldest of its tenant; one that is worth none now is kept."""
    queued, is_shut = waiting(before), before.setup.is_limited and some_run(before)
    was, now = (world.store._picks.num_parked(MODEL) for world in (before, after))  # type: ignore[attr-defined]
    if action.verb == "wake":
        was = min(was, len(queued))
        assert [entries(before)[each].status for each in answer] == [JobStatus.QUEUED] * (was > 0 and not is_shut)
        assert now == was - len(answer), f"{was} turns were kept, {now} are"
    elif isinstance(answer, NotClaimed):
        assert answer.reason == ("blocked" if queued else "idle") and is_shut >= bool(queued), answer
        assert now == (min(was + 1, len(queued)) if queued else was), f"{was} turns were kept, {now} are"
    else:
        taken = entries(before)[answer[0]]
        mates = [entry for entry in queued if entry.new.tenant == taken.new.tenant]
        assert taken in queued and taken.place == min(entry.place for entry in mates) and not is_shut, answer
        assert now == was


def _facts_of_record(world: World, entry: Entry) -> tuple[Any, ...]:
    return (
        entry.status, entry.attempt, entry.lease_ms, entry.record, entry.is_solo, len(entry.events),
        entry.job_id in records(world).abort_wishes,
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

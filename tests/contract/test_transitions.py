"""Both stores, call by call, through random lives of a few jobs; and the table of `tasks/job.py` against the script's.

The Redis store takes its time from `clock` here, so that both see the same instants, jumps included.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tasks.errors import SafelightError, UnknownJob
from tasks.job import TRANSITIONS, Job, JobError, JobStatus, Progress
from tasks.quotas import Limits, Quotas, Share
from tasks.redis_store import SCRIPT
from tasks.store import Claimed, Created, JobStore, Outcome
from tests.contract.stores import Lab, beat_of, failed, memory_lab, model_error, redis_lab, succeeded

IDS = st.sampled_from(["a", "b", "c", "d"])
ATTEMPTS = st.integers(0, 4)
GROUPS = st.sampled_from([None, "g", "h"])
STATES = st.sampled_from(["ready", "draining", "starting"])
TENANTS = st.sampled_from(["default", "acme", "b"])
PRIORITIES = st.sampled_from([0, 5, 9])
QUOTAS = Quotas(
    tenants={"acme": Share(weight=3, max_running_rows=4), "b": Share(weight=0.3, max_queued_rows=3)},
    groups=Limits(max_running_rows=4, max_queued_rows=6),
)
OUTCOMES = st.sampled_from(
    [succeeded(), failed(), failed(JobError(type="invalid_image", message="bad")), Outcome(JobStatus.ABORTED)]
)


def plain(answer: Any) -> Any:
    """An answer as something to compare: errors by type and text, events without the ids that each store makes."""
    if isinstance(answer, SafelightError):
        return type(answer).__name__, str(answer)
    if isinstance(answer, list | tuple):
        return [plain(part) for part in answer]
    return answer


class Lives(RuleBasedStateMachine):
    """Every rule makes one call on both stores; the answers must be equal."""

    make_redis: Callable[[], Lab]

    def __init__(self) -> None:
        super().__init__()
        self.labs = (memory_lab(max_queued=3, quotas=QUOTAS, broker_depth=lambda model: 0), self.make_redis())
        self.seen: dict[str, JobStatus] = {}
        self.attempts: dict[str, int] = {}

    def both(self, call: Callable[[JobStore], Any]) -> Any:
        first, second = (plain(_answer(call, lab.store)) for lab in self.labs)
        assert first == second
        return first

    def number(self, job_id: str, back: int) -> int:
        """An attempt: mostly the present one."""
        return max(0, self.attempts.get(job_id, 0) - max(0, back - 2))

    @rule(job_id=IDS, priority=PRIORITIES, group=GROUPS, key=st.sampled_from([None, "k"]), tenant=TENANTS)
    def create(self, job_id: str, priority: int, group: str | None, key: str | None, tenant: str) -> None:
        new = self.labs[0].new(job_id, key=key, priority=priority, group=group, tenant=tenant)
        self.both(lambda store: list(store.create([new])))

    @rule(job_id=IDS, tenant=TENANTS, group=GROUPS, rows=st.integers(1, 4))
    def create_several_rows(self, job_id: str, tenant: str, group: str | None, rows: int) -> None:
        new = self.labs[0].new(job_id, tenant=tenant, group=group, num_outputs=rows)
        self.both(lambda store: list(store.create([new])))

    @rule(job_id=IDS, group=st.sampled_from(["g", "h"]), deadline_s=st.sampled_from([None, 3.0, 30.0]))
    def create_late_or_superseding(self, job_id: str, group: str, deadline_s: float | None) -> None:
        new = self.labs[0].new(job_id, group=group, supersede=deadline_s is None, deadline_s=deadline_s)
        self.both(lambda store: list(store.create([new])))

    @rule(job_id=IDS, worker=st.sampled_from(["v", "w"]), lease_s=st.sampled_from([2.0, 20.0]))
    def claim(self, job_id: str, worker: str, lease_s: float) -> None:
        self.note(self.both(lambda store: store.claim(job_id, worker, lease_s)))

    @rule(hint=IDS, worker=st.sampled_from(["v", "w"]), lease_s=st.sampled_from([2.0, 20.0]))
    def take(self, hint: str, worker: str, lease_s: float) -> None:
        self.note(self.both(lambda store: store.take("tiny", hint, worker, lease_s)))

    def note(self, answer: Any) -> None:
        if isinstance(answer, Claimed):
            assert answer.attempt > self.attempts.get(answer.job.id, 0), "an attempt number came twice"
            self.attempts[answer.job.id] = answer.attempt

    @rule()
    def wake(self) -> None:
        self.both(lambda store: list(store.wake()))

    @rule(job_id=IDS, back=ATTEMPTS, other=IDS)
    def renew(self, job_id: str, back: int, other: str) -> None:
        leases = {job_id: self.number(job_id, back), other: self.attempts.get(other, 0)}
        self.both(lambda store: dict(store.renew(leases, 20.0)))

    @rule(job_id=IDS, back=ATTEMPTS, fraction=st.sampled_from([0.0, 0.25, 0.5]))
    def report(self, job_id: str, back: int, fraction: float) -> None:
        progress = Progress(stage="denoising", step=int(20 * fraction), num_steps=20, fraction=fraction)
        self.both(lambda store: store.report({(job_id, self.number(job_id, back)): progress}))

    @rule(job_id=IDS, back=ATTEMPTS)
    def preview(self, job_id: str, back: int) -> None:
        self.both(lambda store: store.preview(job_id, self.number(job_id, back), {"png": "…"}))

    @rule(job_id=IDS, back=ATTEMPTS)
    def isolate(self, job_id: str, back: int) -> None:
        self.both(lambda store: store.isolate(job_id, self.number(job_id, back)))

    @rule(job_id=IDS, back=ATTEMPTS, outcome=OUTCOMES)
    def finish(self, job_id: str, back: int, outcome: Outcome) -> None:
        self.both(lambda store: store.finish(job_id, self.number(job_id, back), outcome))

    @rule(job_id=IDS, back=ATTEMPTS, max_attempts=st.integers(1, 3))
    def retry(self, job_id: str, back: int, max_attempts: int) -> None:
        self.both(lambda store: store.retry(job_id, self.number(job_id, back), model_error(), max_attempts))

    @rule(job_id=IDS, back=ATTEMPTS)
    def release(self, job_id: str, back: int) -> None:
        self.both(lambda store: store.release(job_id, self.number(job_id, back)))

    @rule(limit=st.integers(1, 4))
    def reap(self, limit: int) -> None:
        self.both(lambda store: list(store.reap(2, limit)))

    @rule(limit=st.integers(1, 4))
    def stale_hints(self, limit: int) -> None:
        self.both(lambda store: list(store.stale_hints(limit)))

    @rule(job_id=IDS)
    def abort(self, job_id: str) -> None:
        self.both(lambda store: store.abort(job_id))

    @rule(job_id=IDS)
    def abort_from_outside(self, job_id: str) -> None:
        for lab in self.labs:
            lab.want_abort(job_id)
        self.both(lambda store: store.aborts_wanted([job_id, "nobody"]))

    @rule(group=st.sampled_from(["g", "h"]))
    def abort_group(self, group: str) -> None:
        self.both(lambda store: list(store.abort_group(group)))

    @rule(seconds=st.sampled_from([0.001, 1.0, 4.0, 5.0, 25.0, 600.0, -3.0]))
    def time_passes(self, seconds: float) -> None:
        for lab in self.labs:
            lab.clock.advance(seconds)

    @rule(job_id=IDS)
    def drop_dead_letter(self, job_id: str) -> None:
        self.both(lambda store: store.drop_dead_letters([job_id]))

    @rule(limit=st.integers(1, 3), is_swept=st.booleans())
    def sweep(self, limit: int, is_swept: bool) -> None:
        job_ids = self.both(lambda store: list(store.litter(limit, 60.0)))
        if is_swept:
            self.both(lambda store: store.swept(job_ids))

    @rule(name=st.sampled_from(["v", "w"]), state=STATES, busy_rows=st.integers(0, 2))
    def beat(self, name: str, state: str, busy_rows: int) -> None:
        speed = {"step_s": 0.1, "busy_rows": busy_rows, "left": 10 * busy_rows} if busy_rows else {}
        info = {"name": name, **beat_of(**speed), "state": state}
        self.both(lambda store: store.beat(name, info, 10.0))
        self.both(lambda store: list(store.workers()))

    @invariant()
    def both_say_the_same(self) -> None:
        for job_id in ("a", "b", "c", "d"):
            job = self.both(lambda store, job_id=job_id: store.get(job_id))  # type: ignore[misc]
            self.both(lambda store, job_id=job_id: store.explain(job_id))  # type: ignore[misc]
            if isinstance(job, Job):
                self.check_transition(job)
        self.both(lambda store: [job.id for job in store.list(limit=3).jobs])
        self.both(lambda store: store.list(status=JobStatus.RUNNING))
        self.both(lambda store: list(store.queues(["tiny"])))
        self.both(lambda store: list(store.tenants()))
        dead = self.both(lambda store: list(store.dead_letters()))
        if dead:
            self.both(lambda store: store.find_dead_letters(limit=2))
            self.both(lambda store: store.dead_letter(dead[-1]))
        counted = [store.totals().tally.fields for store in (self.labs[0].store, self.labs[1].store)]
        assert counted[0] == counted[1]

    def check_transition(self, job: Job) -> None:
        earlier = self.seen.get(job.id, JobStatus.QUEUED)
        if job.status is not earlier:
            assert job.status in TRANSITIONS[earlier], f"{earlier} -> {job.status}"
        self.seen[job.id] = job.status

    def teardown(self) -> None:
        for job_id in ("a", "b", "c", "d"):
            self.both(lambda store, job_id=job_id: [(e.type, e.data) for e in store.events(job_id)])  # type: ignore[misc]
            types = [event.type for event in self.labs[1].store.events(job_id)]
            is_over = job_id in self.seen and self.seen[job_id].is_terminal
            assert types.count("done") == is_over, "each job has one end, and says so once"


def _answer(call: Callable[[JobStore], Any], store: JobStore) -> Any:
    try:
        answer = call(store)
    except UnknownJob as error:
        return error
    if isinstance(answer, list):
        return [part.job if isinstance(part, Created) else part for part in answer]
    return answer


@pytest.fixture
def make_redis(redis_url: str) -> Iterator[Callable[[], Lab]]:
    client = redis.Redis.from_url(redis_url)

    def make() -> Lab:
        client.flushdb()
        return redis_lab(redis_url, max_queued=3, quotas=QUOTAS)

    yield make
    client.close()


def live(make_redis: Callable[[], Lab], max_examples: int) -> None:
    """Random lives on a store that `make_redis` makes anew for each."""
    machine = type("LivesHere", (Lives,), {"make_redis": staticmethod(make_redis)})
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=max_examples, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_random_lives(make_redis: Callable[[], Lab]) -> None:
    live(make_redis, max_examples=15)


def test_the_scripts_table_is_ours(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    table = json.loads(client.eval(SCRIPT, 1, "safelight:jobs", "safelight:", "moves", "", "1000"))  # type: ignore[arg-type]
    assert {status: set(moves) for status, moves in table.items()} == {
        status.value: {to.value for to in moves} for status, moves in TRANSITIONS.items()
    }

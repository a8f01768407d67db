"""One body over both stores: whose job a turn claims, shares, limits, and that no turn is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.connection import connect
from tasks.errors import InvalidRequest, QueueFull, StoreUnavailable
from tasks.job import JobStatus
from tasks.quotas import Limits, Quotas, Share
from tasks.redis_store import RedisJobStore
from tasks.settings import Settings
from tasks.store import Claimed, Created, NotClaimed, TenantRows
from tests.contract.stores import LEASE_S, WORKER, Lab, model_error, redis_lab, succeeded

MakeLab = Callable[..., Lab]
drawn = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


def taken(lab: Lab, number: int) -> list[str | None]:
    return [lab.take() for _ in range(number)]


def finish(lab: Lab, job_id: str) -> None:
    lab.store.finish(job_id, lab.store.get(job_id).attempt, succeeded())


def tenants_of(lab: Lab, job_ids: Sequence[str | None]) -> list[str]:
    return [lab.store.get(job_id or "").tenant for job_id in job_ids]


class TestOneTenant:
    def test_a_turn_is_for_whoever_is_due_and_not_for_the_job_of_the_hint(self, lab: Lab) -> None:
        first, second = lab.create(), lab.create()
        claimed = lab.store.take("tiny", second, WORKER, LEASE_S)
        assert isinstance(claimed, Claimed)
        assert (claimed.job.id, claimed.attempt, claimed.job.worker) == (first, 1, WORKER)
        assert lab.take(hint=first) == second
        assert lab.store.take("tiny", first, WORKER, LEASE_S) == NotClaimed("idle")

    def test_another_models_jobs_are_not_due(self, lab: Lab) -> None:
        job_id = lab.create()
        assert lab.store.take("other", job_id, WORKER, LEASE_S) == NotClaimed("idle")
        assert lab.status(job_id) is JobStatus.QUEUED

    def test_a_level_of_priority_is_a_minute(self, lab: Lab) -> None:
        waits = lab.create("waits", priority=3)
        lab.clock.advance(119.9)
        ahead = lab.create("ahead", priority=5)
        lab.clock.advance(0.2)
        behind = lab.create("behind", priority=5)
        assert [lab.store.get(job_id).progress.queue_position for job_id in (ahead, waits, behind)] == [0, 1, 2]
        assert taken(lab, 3) == [ahead, waits, behind]

    def test_the_lowest_priority_does_not_starve(self, lab: Lab) -> None:
        lowest = lab.create(priority=0)
        for number in count(1):
            lab.clock.advance(10)
            lab.create(priority=9)
            if lab.take() == lowest:
                assert number == 54, "after the nine minutes that nine levels are worth"
                return

    def test_a_job_that_comes_back_keeps_its_age(self, lab: Lab) -> None:
        first, second = lab.create(), lab.create()
        assert lab.take() == first
        lab.clock.advance(30)
        lab.store.retry(first, 1, model_error(), 3)
        assert taken(lab, 2) == [first, second]

    def test_jobs_that_are_not_to_run_end_on_the_way(self, lab: Lab) -> None:
        unwanted, late, good = lab.create(), lab.create(deadline_s=5), lab.create()
        lab.want_abort(unwanted)
        lab.clock.advance(6)
        assert lab.take() == good
        assert [lab.status(job_id) for job_id in (unwanted, late)] == [JobStatus.ABORTED, JobStatus.FAILED]

    def test_a_clock_that_jumps_back_reorders_nobody(self, lab: Lab) -> None:
        first = lab.create()
        lab.clock.advance(-3600)
        second = lab.create()
        assert taken(lab, 2) == [first, second]


class TestShares:
    def test_follow_the_weights_while_all_wait(self, make_lab: MakeLab) -> None:
        weights = st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=2, max_size=4)

        @drawn
        @given(weights, st.lists(st.integers(1, 4), min_size=4, max_size=4))
        def share(weights: list[float], rows: list[int]) -> None:
            shares = {f"t{number}": Share(weight=weight) for number, weight in enumerate(weights)}
            lab = make_lab(quotas=Quotas(tenants=shares))
            size = dict(zip(shares, rows, strict=False))
            jobs = [lab.new(tenant=name, num_outputs=size[name]) for name in shares for _ in range(30)]
            lab.store.create(jobs)
            served = Counter[str]()
            for tenant in tenants_of(lab, taken(lab, 25)):
                served[tenant] += size[tenant]
            for one, other in ((a, b) for a in shares for b in shares):
                apart = served[one] / shares[one].weight - served[other] / shares[other].weight
                assert abs(apart) <= size[one] / shares[one].weight + size[other] / shares[other].weight

        share()

    def test_who_was_away_saves_up_nothing(self, lab: Lab) -> None:
        for _ in range(12):
            lab.create(tenant="busy")
        taken(lab, 6)
        for _ in range(6):
            lab.create(tenant="away")
        assert tenants_of(lab, taken(lab, 6)).count("away") in (3, 4)

    def test_who_sends_one_by_one_gets_no_more(self, lab: Lab) -> None:
        for _ in range(10):
            lab.create(tenant="many")
        lab.create(tenant="one")
        served = []
        for _ in range(8):
            [tenant] = tenants_of(lab, taken(lab, 1))
            served.append(tenant)
            if tenant == "one":
                lab.create(tenant="one")
        assert served.count("one") == 4

    def test_positions_are_the_order_of_turns_for_jobs_of_one_row(self, make_lab: MakeLab) -> None:
        jobs = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), min_size=1, max_size=12)

        @drawn
        @given(jobs, st.integers(0, 4))
        def places(jobs: list[tuple[str, int]], num_before: int) -> None:
            lab = make_lab(quotas=Quotas(tenants={"a": Share(weight=2), "b": Share(weight=0.5)}))
            job_ids = [lab.create(tenant=tenant, priority=priority) for tenant, priority in jobs]
            waiting = set(job_ids) - {str(job_id) for job_id in taken(lab, num_before)}
            told = {lab.store.get(job_id).progress.queue_position: job_id for job_id in waiting}
            assert taken(lab, len(waiting)) == [told[place] for place in range(len(waiting))]

        places()


class TestQueuedLimits:
    QUOTAS = Quotas(tenants={"acme": Share(max_queued_rows=4)}, groups=Limits(max_queued_rows=3))

    def test_refuse_the_tenant_whose_rows_wait_and_nobody_else(self, make_lab: MakeLab) -> None:
        lab = make_lab(quotas=self.QUOTAS)
        lab.create(tenant="acme", num_outputs=3)
        [refused, taken_one, other] = lab.store.create(
            [lab.new(tenant="acme", num_outputs=2), lab.new(tenant="acme"), lab.new(num_outputs=9)]
        )
        assert isinstance(refused, QueueFull)
        assert refused.whose == "tenant acme" and "tenant acme" in str(refused) and "4" in str(refused)
        assert isinstance(taken_one, Created) and isinstance(other, Created)
        lab.take()
        assert isinstance(lab.store.create([lab.new(tenant="acme", num_outputs=1)])[0], Created), (
            "those that run do not wait"
        )

    def test_refuse_the_group(self, make_lab: MakeLab) -> None:
        lab = make_lab(quotas=self.QUOTAS)
        lab.create(group="g", num_outputs=3)
        [refused, newer] = lab.store.create([lab.new(group="g"), lab.new(group="g", supersede=True)])
        assert isinstance(refused, QueueFull) and refused.whose == "group g"
        assert isinstance(newer, Created), "it makes its own room"

    def test_a_job_that_can_never_fit_is_a_bad_request(self, make_lab: MakeLab) -> None:
        lab = make_lab(quotas=Quotas(default=Share(max_running_rows=2)))
        [refused] = lab.store.create([lab.new(num_outputs=3)])
        assert isinstance(refused, InvalidRequest) and refused.field == "num_outputs"

    def test_idempotency_keys_are_each_tenants_own(self, lab: Lab) -> None:
        mine, theirs = lab.create("a", key="k"), lab.create("b", key="k", tenant="acme", prompt="another")
        [again] = lab.store.create([lab.new("c", key="k", tenant="acme", prompt="another")])
        assert isinstance(again, Created)
        assert (mine, theirs, again.job.id) == ("a", "b", "b")


class TestRunningLimits:
    def test_a_turn_passes_over_who_is_at_the_limit(self, make_lab: MakeLab) -> None:
        lab = make_lab(quotas=Quotas(tenants={"acme": Share(max_running_rows=3)}))
        first = lab.create(tenant="acme", num_outputs=2)
        large, small = lab.create(tenant="acme", num_outputs=2), lab.create(tenant="acme")
        other = lab.create()
        assert taken(lab, 3) == [first, other, None], "the small one waits behind the large one"
        assert lab.store.explain(large).held_by == "tenant acme may run 3 outputs at a time, and 2 do"
        assert lab.store.explain(small).held_by is lab.store.explain(first).held_by is None
        finish(lab, first)
        assert taken(lab, 3) == [large, small, None]

    def test_a_group_at_its_limit_lets_its_tenants_other_jobs_pass(self, make_lab: MakeLab) -> None:
        lab = make_lab(quotas=Quotas(groups=Limits(max_running_rows=2)))
        first, held, _ = (lab.create(group="g", num_outputs=rows) for rows in (1, 2, 1))
        other, lone = lab.create(group="h"), lab.create()
        assert taken(lab, 4) == [first, other, lone, None]
        finish(lab, first)
        assert lab.take() == held

    def test_who_is_at_the_limit_saves_up_nothing_meanwhile(self, make_lab: MakeLab) -> None:
        lab = make_lab(quotas=Quotas(tenants={"acme": Share(max_running_rows=4)}))
        lab.store.create([lab.new(tenant="acme") for _ in range(8)] + [lab.new() for _ in range(16)])
        for job_id in [job_id for job_id in taken(lab, 16) if lab.store.get(str(job_id)).tenant == "acme"]:
            finish(lab, str(job_id))
        assert tenants_of(lab, taken(lab, 4)).count("acme") in (2, 3)

    def test_a_turn_that_found_all_at_their_limits_is_kept_until_rows_are_free(self, make_lab: MakeLab) -> None:
        lab = make_lab(quotas=Quotas(default=Share(max_running_rows=1)))
        first, *_ = (lab.create() for _ in range(3))
        assert lab.take() == first
        for _ in range(5):  # two that wait, and messages that came twice
            assert lab.store.take("tiny", "nobody", WORKER, LEASE_S) == NotClaimed("blocked")
        lab.clock.advance(600)
        assert lab.store.stale_hints() == lab.store.wake() == [], "no message can help"
        for _ in range(2):
            finish(lab, lab.store.list(status=JobStatus.RUNNING).jobs[0].id)
            [hint] = lab.store.wake()
            assert lab.take(hint=hint.job_id) == hint.job_id
        assert lab.store.wake() == []

    def test_the_sweep_wakes_too(self, make_lab: MakeLab) -> None:
        lab = make_lab(quotas=Quotas(default=Share(max_running_rows=1)))
        first, second = lab.create(), lab.create()
        assert taken(lab, 2) == [first, None]
        finish(lab, first)
        assert [hint.job_id for hint in lab.store.stale_hints()] == [second]

    def test_a_limit_that_was_lowered_below_a_job_keeps_it_not_for_ever(
        self, make_lab: MakeLab, redis_url: str
    ) -> None:
        wide, narrow = redis_lab(redis_url), redis_lab(redis_url, quotas=Quotas(default=Share(max_running_rows=2)))
        large, small = wide.create(num_outputs=8), wide.create()
        assert taken(narrow, 2) == [large, None]
        finish(narrow, large)
        assert narrow.take() == small

    def test_limits_hold_and_every_job_runs_with_no_message_but_those_that_are_sent(self, make_lab: MakeLab) -> None:
        jobs = st.lists(
            st.tuples(st.sampled_from("abc"), st.sampled_from([None, "g"]), st.integers(1, 4), st.integers(0, 9)),
            min_size=1,
            max_size=14,
        )
        limits = {"a": 4, "b": 5}

        @drawn
        @given(jobs, st.data())
        def live(jobs: list[tuple[str, str | None, int, int]], data: st.DataObject) -> None:
            shares = {name: Share(max_running_rows=most) for name, most in limits.items()}
            lab = make_lab(quotas=Quotas(tenants=shares, groups=Limits(max_running_rows=6)))
            for tenant, group, rows, priority in jobs:
                lab.create(tenant=tenant, group=group, num_outputs=rows, priority=priority)
            messages, running = len(jobs), list[str]()
            for _ in range(8 * len(jobs)):
                if messages and (not running or data.draw(st.booleans())):
                    messages -= 1
                    running += [job_id for job_id in [lab.take()] if job_id]
                elif running:
                    finish(lab, running.pop(data.draw(st.integers(0, len(running) - 1))))
                messages += len(lab.store.wake())
                check(lab, running)
            assert not lab.store.tenants(), "a turn was lost, or all wait for one another"

        def check(lab: Lab, running: list[str]) -> None:
            found = [lab.store.get(job_id) for job_id in running]
            rows = Counter[str | None]()
            for job in found:
                rows[job.tenant] += job.request.num_outputs
                rows[job.request.group] += job.request.num_outputs
            assert all(rows[name] <= most for name, most in {**limits, "g": 6}.items())
            assert {one.tenant: one.running_rows for one in lab.store.tenants() if one.running_rows} == {
                name: rows[name] for name in "abc" if rows[name]
            }

        live()


class TestRedisAlone:
    def test_a_turn_whose_answer_was_lost_is_answered_alike(self, redis_url: str) -> None:
        lab = redis_lab(redis_url)
        first, second = lab.create(), lab.create()
        store = RedisJobStore(connect(Settings(redis_url=redis_url)), clock=lab.clock)
        run = store._script

        def losing(keys: list[str], args: list[str]) -> object:
            store._script = run
            run(keys, args)
            raise redis.TimeoutError("Timeout reading from socket")

        store._script = losing  # type: ignore[assignment]
        with pytest.raises(StoreUnavailable):
            store.take("tiny", second, "w", LEASE_S)
        again = store.take("tiny", second, "w", LEASE_S)
        assert isinstance(again, Claimed) and (again.job.id, again.attempt) == (first, 1)
        other = store.take("tiny", second, "w", LEASE_S)
        assert isinstance(other, Claimed) and other.job.id == second, "another message of the same id is another turn"

    def test_a_lost_turn_whose_attempt_is_over_claims_nothing(self, redis_url: str) -> None:
        lab = redis_lab(redis_url)
        first, second = lab.create(), lab.create()
        lab.store._lost_claims = {second: "token"}  # type: ignore[attr-defined]
        assert lab.take(hint=second) == first
        lab.store.release(first, 1)
        lab.store._lost_claims = {second: "token"}  # type: ignore[attr-defined]
        assert lab.store.take("tiny", second, WORKER, LEASE_S) == NotClaimed("leased")

    def test_rows_of_lost_records_are_counted_no_more(self, redis_url: str) -> None:
        lab = redis_lab(redis_url, quotas=Quotas(default=Share(max_running_rows=4)))
        client = redis.Redis.from_url(redis_url)
        gone = lab.create(num_outputs=3), lab.create(tenant="acme", num_outputs=2)
        kept = lab.create(num_outputs=2, tenant="acme")
        assert lab.take() in gone
        client.delete(*(f"safelight:job:{job_id}" for job_id in gone))
        lab.clock.advance(LEASE_S)
        lab.store.reap(3)
        lab.store.stale_hints()
        assert lab.store.tenants() == [TenantRows("acme", 2, 0)]
        assert taken(lab, 2) == [kept, None]

    def test_jobs_of_a_release_without_lines_get_their_turn(self, redis_url: str) -> None:
        lab = redis_lab(redis_url)
        client = redis.Redis.from_url(redis_url)
        old = lab.create()
        client.delete("safelight:line:tiny:default", "safelight:turns:tiny", "safelight:rows:queued:tenant")
        client.hdel(f"safelight:job:{old}", "rows", "stamp")
        new = lab.create()
        assert [lab.take(hint=old), lab.take(hint=new)] == [old, new]
        finish(lab, old)
        assert lab.store.tenants() == [TenantRows("default", 0, 1)]

    def test_one_tenant_costs_a_handful_of_keys_and_none_when_nothing_waits(self, redis_url: str) -> None:
        lab = redis_lab(redis_url)
        client = redis.Redis.from_url(redis_url, decode_responses=True)
        for _ in range(20):
            lab.create()
        own = {"line:tiny:default", "turns:tiny", "clock", "rested:tiny", "parked"}
        lab.take()
        assert own & {key.removeprefix("safelight:") for key in client.scan_iter()} == {
            "line:tiny:default",
            "turns:tiny",
            "clock",
        }
        for job_id in taken(lab, 19):
            finish(lab, str(job_id))
        assert not own & {key.removeprefix("safelight:") for key in client.scan_iter()}

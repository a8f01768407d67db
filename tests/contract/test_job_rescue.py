"""One body over both stores: lapsed leases, aborts and lost messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tasks.errors import UnknownJob
from tasks.job import JobStatus
from tasks.store import Lease, Written
from tests.contract.stores import (
    LEASE_S,
    Lab,
    model_error,
    succeeded,
)

MakeLab = Callable[..., Lab]


class TestReap:
    def test_a_lost_attempt_is_queued_again(self, lab: Lab) -> None:
        job_id, attempt = lab.running(priority=8)
        lab.clock.advance(LEASE_S - 0.001)
        assert lab.store.reap(3) == []
        lab.clock.advance(0.001)
        [reaped] = lab.store.reap(3)
        assert (reaped.hint.job_id, reaped.hint.model, reaped.hint.priority) == (job_id, "tiny", 8)
        assert reaped.status is JobStatus.QUEUED
        [error] = lab.store.get(job_id).errors
        assert (error.type, error.attempt) == ("worker_lost", attempt)
        assert lab.store.reap(3) == []

    def test_a_live_lease_is_never_lost(self, lab: Lab) -> None:
        job_id, attempt = lab.running()
        for _ in range(100):
            lab.clock.advance(LEASE_S - 1)
            assert lab.store.renew({job_id: attempt}, LEASE_S) == {job_id: Lease.HELD}
            assert lab.store.reap(3) == []
        assert lab.status(job_id) is JobStatus.RUNNING

    def test_two_crashes_bring_quarantine_and_two_more_there_the_end(self, lab: Lab) -> None:
        job_id = lab.create()
        assert [lab.crash(job_id, alone=False) for _ in range(2)] == [JobStatus.QUEUED] * 2
        claimed = lab.claim(job_id)
        assert claimed.solo
        lab.store.release(job_id, claimed.attempt)
        assert [lab.crash(job_id, alone=True) for _ in range(2)] == [JobStatus.QUEUED, JobStatus.FAILED]
        job = lab.store.get(job_id)
        assert job.error is not None
        assert (job.error.type, len(job.errors), lab.store.dead_letters()) == ("worker_lost", 4, [job_id])

    def test_an_innocent_that_survives_alone_is_not_blamed(self, lab: Lab) -> None:
        job_id = lab.create()
        for _ in range(2):
            lab.crash(job_id)
        claimed = lab.claim(job_id)
        lab.store.isolate(job_id, claimed.attempt)
        assert lab.store.finish(job_id, claimed.attempt, succeeded()) is Written.OK

    def test_a_crash_after_it_was_alone_is_not_its_own(self, lab: Lab) -> None:
        """Its outputs were made and waited for the object store, while others ran."""
        job_id = lab.create()
        lab.crash(job_id, alone=True)
        claimed = lab.claim(job_id)
        assert lab.store.isolate(job_id, claimed.attempt) is Written.OK
        assert lab.store.isolate(job_id, claimed.attempt, alone=False) is Written.OK
        lab.clock.advance(LEASE_S)
        assert [one.status for one in lab.store.reap(3)] == [JobStatus.QUEUED]
        facts = lab.store.explain(job_id)
        assert (facts.crashes, facts.solo_crashes) == (1, 1)

    def test_crashes_do_not_use_up_max_attempts(self, lab: Lab) -> None:
        job_id = lab.create()
        for _ in range(5):
            assert lab.crash(job_id, max_attempts=1) is JobStatus.QUEUED
        assert lab.store.retry(job_id, lab.claim(job_id).attempt, model_error(), 2) is JobStatus.QUEUED

    def test_attempts_are_bounded_in_any_case(self, lab: Lab) -> None:
        job_id = lab.create()
        statuses = [lab.crash(job_id) for _ in range(13)]
        assert statuses == [JobStatus.QUEUED] * 12 + [JobStatus.FAILED]

    def test_isolation_is_of_one_attempt(self, lab: Lab) -> None:
        job_id = lab.create()
        lab.crash(job_id, alone=True)
        assert lab.crash(job_id, alone=False) is JobStatus.QUEUED
        assert lab.crash(job_id, alone=True) is JobStatus.FAILED

    def test_an_unwanted_job_ends(self, lab: Lab) -> None:
        job_id, _ = lab.running()
        lab.want_abort(job_id)
        lab.clock.advance(LEASE_S)
        assert [reaped.status for reaped in lab.store.reap(3)] == [JobStatus.ABORTED]

    def test_takes_no_more_than_its_limit(self, lab: Lab) -> None:
        for _ in range(5):
            lab.running()
        lab.clock.advance(LEASE_S)
        assert [len(lab.store.reap(3, limit=2)) for _ in range(4)] == [2, 2, 1, 0]


class TestAbort:
    def test_a_queued_job_ends_at_once(self, lab: Lab) -> None:
        job_id = lab.create()
        assert lab.store.abort(job_id).status is JobStatus.ABORTED
        assert lab.types(job_id) == ["status", "status", "done"]
        assert lab.store.aborts_wanted([job_id]) == frozenset()

    def test_a_running_job_is_told_in_three_ways(self, lab: Lab) -> None:
        job_id, attempt = lab.running()
        other, other_attempt = lab.running()
        assert lab.store.abort(job_id).status is JobStatus.RUNNING
        assert lab.store.aborts_wanted([job_id, other]) == {job_id}
        answers = lab.store.renew({job_id: attempt, other: other_attempt}, LEASE_S)
        assert answers == {job_id: Lease.ABORT, other: Lease.HELD}
        assert lab.store.events(job_id)[-1].data["abort_requested"] is True

    def test_a_wish_is_seen_in_the_record_until_the_end(self, lab: Lab) -> None:
        (job_id, attempt), (other, _) = lab.running(), lab.running()
        assert lab.store.abort(job_id).abort_requested and lab.store.get(job_id).abort_requested
        assert not lab.store.get(other).abort_requested
        lab.want_abort(other)
        assert [job.abort_requested for job in lab.store.list().jobs] == [True, True]
        lab.store.finish(job_id, attempt, succeeded())
        assert not lab.store.get(job_id).abort_requested

    def test_success_may_still_come_first_and_never_both(self, lab: Lab) -> None:
        job_id, attempt = lab.running()
        lab.store.abort(job_id)
        assert lab.store.finish(job_id, attempt, succeeded()) is Written.OK
        assert lab.store.abort(job_id).status is JobStatus.SUCCEEDED
        assert lab.store.aborts_wanted([job_id]) == frozenset()

    def test_a_repeated_wish_is_one_event(self, lab: Lab) -> None:
        job_id, _ = lab.running()
        for _ in range(3):
            lab.store.abort(job_id)
        assert lab.types(job_id) == ["status", "status", "status"]

    def test_an_outside_key_ends_a_queued_job_in_the_sweep(self, lab: Lab) -> None:
        job_id = lab.create()
        lab.want_abort(job_id)
        lab.clock.advance(5)
        assert lab.store.stale_hints() == []
        assert lab.status(job_id) is JobStatus.ABORTED

    def test_an_unknown_job_is_said_to_be(self, lab: Lab) -> None:
        with pytest.raises(UnknownJob):
            lab.store.abort("nobody")

    def test_a_group(self, lab: Lab) -> None:
        queued = [lab.create(group="g") for _ in range(3)]
        running, _ = lab.running(group="g")
        done, attempt = lab.running(group="g")
        lab.store.finish(done, attempt, succeeded())
        other = lab.create(group="h")
        assert sorted(lab.store.abort_group("g")) == sorted([*queued, running])
        assert {lab.status(job_id) for job_id in queued} == {JobStatus.ABORTED}
        assert (lab.status(other), lab.status(done)) == (JobStatus.QUEUED, JobStatus.SUCCEEDED)
        assert lab.store.abort_group("nobody's") == []

    def test_a_group_of_more_than_one_call_takes(self, lab: Lab) -> None:
        job_ids = [lab.create(group="g") for _ in range(250)]
        assert sorted(lab.store.abort_group("g")) == sorted(job_ids)


class TestHints:
    def test_a_message_is_overdue_after_five_seconds(self, lab: Lab) -> None:
        job_id = lab.create(priority=2)
        lab.clock.advance(4.999)
        assert lab.store.stale_hints() == []
        lab.clock.advance(0.001)
        [hint] = lab.store.stale_hints()
        assert (hint.job_id, hint.model, hint.priority) == (job_id, "tiny", 2)
        assert lab.store.stale_hints() == []

    def test_with_an_empty_broker_it_comes_every_five_seconds(self, lab: Lab) -> None:
        lab.create()
        for _ in range(20):
            lab.clock.advance(5)
            assert len(lab.store.stale_hints()) == 1

    @pytest.mark.parametrize("end", ["release", "retry", "reap"])
    def test_a_requeued_job_has_its_message_from_the_caller(self, lab: Lab, end: str) -> None:
        job_id, attempt = lab.running()
        lab.clock.advance(LEASE_S)
        if end == "release":
            lab.store.release(job_id, attempt)
        elif end == "retry":
            lab.store.retry(job_id, attempt, model_error(), 3)
        else:
            lab.store.reap(3)
        assert lab.store.stale_hints() == []
        lab.clock.advance(5)
        assert [hint.job_id for hint in lab.store.stale_hints()] == [job_id]

    def test_running_and_ended_jobs_need_none(self, lab: Lab) -> None:
        lab.running()
        lab.store.abort(lab.create())
        lab.clock.advance(100)
        assert lab.store.stale_hints() == []

    def test_takes_no_more_than_its_limit_and_reaches_all(self, lab: Lab) -> None:
        job_ids = {lab.create() for _ in range(7)}
        lab.clock.advance(5)
        batches = [lab.store.stale_hints(limit=3) for _ in range(4)]
        assert [len(batch) for batch in batches] == [3, 3, 1, 0]
        assert {hint.job_id for batch in batches for hint in batch} == job_ids

    def test_a_queued_job_fails_at_its_deadline(self, lab: Lab) -> None:
        job_id = lab.create(deadline_s=3)
        lab.clock.advance(3)
        assert lab.store.stale_hints() == []
        job = lab.store.get(job_id)
        assert job.error is not None
        assert (job.status, job.error.type, lab.store.dead_letters()) == (JobStatus.FAILED, "deadline_exceeded", [])

"""One body over both stores: each rule of the contract in `tasks/store.py` is a test."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

import pytest

from tasks.errors import IdempotencyConflict, InvalidRequest, QueueFull, UnknownJob
from tasks.job import Batching, JobError, JobMetrics, JobStatus, Progress
from tasks.store import Created, Lease, NewJob, NotClaimed, Outcome, PriorityStats, Written
from tasks.submission import new_job
from tests.contract.stores import (
    LEASE_S,
    MODELS,
    WORKER,
    Lab,
    beat_of,
    failed,
    memory_lab,
    model_error,
    redis_lab,
    succeeded,
)

MakeLab = Callable[..., Lab]


@pytest.fixture(params=["memory", "redis"])
def make_lab(request: pytest.FixtureRequest) -> MakeLab:
    if request.param == "memory":
        return memory_lab
    url = request.getfixturevalue("redis_url")
    return lambda **options: redis_lab(url, **options)


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    return make_lab()


class TestCreate:
    def test_a_new_job_is_queued_and_resolved(self, lab: Lab) -> None:
        [created] = lab.store.create([lab.new("a")])
        assert isinstance(created, Created)
        assert created.is_new
        assert created.job == lab.store.get("a")
        assert created.job.status is JobStatus.QUEUED
        assert (created.job.attempt, created.job.request.height, created.job.request.model) == (0, 96, "tiny")
        assert created.job.progress.queue_position == 0

    def test_answers_come_in_order_and_one_refusal_spoils_no_other(self, make_lab: MakeLab) -> None:
        lab = make_lab(max_queued=2)
        answers = lab.store.create([lab.new("a"), lab.new("b"), lab.new("c"), lab.new("a")])
        assert [type(answer) for answer in answers] == [Created, Created, QueueFull, Created]
        assert not answers[3].is_new  # type: ignore[union-attr]
        with pytest.raises(UnknownJob):
            lab.store.get("c")

    def test_only_queued_jobs_fill_the_queue(self, make_lab: MakeLab) -> None:
        lab = make_lab(max_queued=1)
        lab.claim(lab.create("a"))
        lab.create("b")
        assert isinstance(lab.store.create([lab.new("c")])[0], QueueFull)

    def test_same_key_and_body_is_the_same_job(self, lab: Lab) -> None:
        lab.create("a", key="k")
        lab.claim("a")
        [again] = lab.store.create([lab.new("b", key="k")])
        assert isinstance(again, Created)
        assert (again.job.id, again.is_new, again.job.status) == ("a", False, JobStatus.RUNNING)

    def test_same_key_and_another_body_is_a_conflict(self, lab: Lab) -> None:
        lab.create("a", key="k")
        [refused] = lab.store.create([lab.new("b", key="k", prompt="another")])
        assert isinstance(refused, IdempotencyConflict)
        assert "'k'" in str(refused)

    def test_same_id_and_another_body_is_a_conflict(self, lab: Lab) -> None:
        lab.create("a")
        [refused] = lab.store.create([lab.new("a", prompt="another")])
        assert isinstance(refused, IdempotencyConflict)
        assert "'a'" in str(refused)

    def test_an_undrawn_seed_is_the_same_body(self, lab: Lab) -> None:
        first, second = (new_job({"prompt": "x"}, MODELS, idempotency_key="k") for _ in range(2))
        assert first.request.seed != second.request.seed
        created, again = lab.store.create([first, second])
        assert isinstance(created, Created) and isinstance(again, Created)
        assert again.job == created.job

    def test_supersede_aborts_older_live_jobs_of_the_group_alone(self, lab: Lab) -> None:
        queued, other = lab.create(group="g"), lab.create(group="h")
        running, _ = lab.running(group="g")
        newest = lab.create(group="g", supersede=True)
        assert lab.status(queued) is JobStatus.ABORTED
        assert lab.store.aborts_wanted([queued, running, other, newest]) == {running}
        assert lab.status(other) is lab.status(newest) is JobStatus.QUEUED

    def test_a_rejected_job_is_recorded_as_failed(self, lab: Lab) -> None:
        new = lab.new("a")
        error = JobError(type="invalid_request", message="height: 7 is too small")
        [created] = lab.store.create([NewJob("a", new.request, new.digest, rejected=error)])
        assert isinstance(created, Created)
        assert created.job == lab.store.get("a")
        assert (created.job.status, created.job.error) == (JobStatus.FAILED, error)
        assert lab.store.claim("a", WORKER, LEASE_S) == NotClaimed("terminal")
        assert (lab.types("a")[-1], lab.store.dead_letters()) == ("done", [])


class TestClaim:
    def test_gives_the_next_attempt_number(self, lab: Lab) -> None:
        job_id, attempt = lab.running()
        job = lab.store.get(job_id)
        assert (attempt, job.status, job.worker, job.progress.stage) == (1, JobStatus.RUNNING, WORKER, "loading")
        assert job.started_at is not None
        lab.store.release(job_id, attempt)
        assert lab.claim(job_id).attempt == 2

    def test_says_why_not(self, lab: Lab) -> None:
        running, _ = lab.running()
        done, attempt = lab.running()
        lab.store.finish(done, attempt, succeeded())
        wanted = lab.create()
        lab.want_abort(wanted)
        reasons = [lab.store.claim(job_id, WORKER, LEASE_S) for job_id in ("nobody", running, done, wanted)]
        assert reasons == [NotClaimed("unknown"), NotClaimed("leased"), NotClaimed("terminal"), NotClaimed("aborted")]
        assert lab.status(wanted) is JobStatus.ABORTED

    def test_a_lapsed_lease_is_for_the_reaper_alone(self, lab: Lab) -> None:
        job_id, attempt = lab.running()
        lab.clock.advance(LEASE_S * 10)
        assert lab.store.claim(job_id, "worker-2", LEASE_S) == NotClaimed("leased")
        assert lab.store.renew({job_id: attempt}, LEASE_S) == {job_id: Lease.HELD}
        assert lab.store.reap(3) == []

    def test_a_job_past_its_deadline_fails(self, lab: Lab) -> None:
        job_id = lab.create(deadline_s=20)
        lab.clock.advance(20)
        assert lab.store.claim(job_id, WORKER, LEASE_S) == NotClaimed("terminal")
        job = lab.store.get(job_id)
        assert job.error is not None
        assert (job.status, job.error.type) == (JobStatus.FAILED, "deadline_exceeded")


class TestFencing:
    def test_an_old_attempt_changes_nothing(self, lab: Lab) -> None:
        job_id, old = lab.running()
        lab.clock.advance(LEASE_S)
        lab.store.reap(3)
        new = lab.claim(job_id).attempt
        before, events = lab.store.get(job_id), lab.store.events(job_id)
        assert lab.store.renew({job_id: old}, LEASE_S) == {job_id: Lease.LOST}
        lab.store.report({(job_id, old): Progress(stage="denoising", step=3, num_steps=20)})
        assert lab.store.preview(job_id, old, {"x": 1}) is Written.FENCED
        assert lab.store.isolate(job_id, old) is Written.FENCED
        assert lab.store.finish(job_id, old, succeeded()) is Written.FENCED
        assert lab.store.retry(job_id, old, model_error(), 3) is Written.FENCED
        assert lab.store.release(job_id, old) is Written.FENCED
        assert lab.store.get(job_id) == before
        assert lab.store.events(job_id) == events
        assert lab.store.finish(job_id, new, succeeded()) is Written.OK

    @pytest.mark.parametrize("outcome", [succeeded(), failed(), Outcome(JobStatus.ABORTED)], ids=lambda o: o.status)
    def test_terminal_is_final(self, lab: Lab, outcome: Outcome) -> None:
        job_id, attempt = lab.running()
        lab.store.finish(job_id, attempt, outcome)
        before, events = lab.store.get(job_id), lab.store.events(job_id)
        others = [
            other for other in (succeeded(), failed(), Outcome(JobStatus.ABORTED)) if other.status != outcome.status
        ]
        assert [lab.store.finish(job_id, attempt, other) for other in others] == [Written.TERMINAL] * 2
        assert lab.store.retry(job_id, attempt, model_error(), 3) is Written.TERMINAL
        assert lab.store.release(job_id, attempt) is Written.TERMINAL
        assert lab.store.isolate(job_id, attempt) is Written.TERMINAL
        assert lab.store.preview(job_id, attempt, {}) is Written.TERMINAL
        lab.store.report({(job_id, attempt): Progress(stage="denoising", step=3, num_steps=20)})
        assert lab.store.renew({job_id: attempt}, LEASE_S) == {job_id: Lease.LOST}
        assert lab.store.abort(job_id) == before
        lab.clock.advance(LEASE_S)
        assert (lab.store.reap(3), lab.store.stale_hints()) == ([], [])
        assert lab.store.get(job_id) == before
        assert lab.store.events(job_id) == events

    def test_a_finish_whose_answer_was_lost_is_answered_alike(self, lab: Lab) -> None:
        job_id, attempt = lab.running()
        assert lab.store.finish(job_id, attempt, succeeded()) is Written.OK
        assert lab.store.finish(job_id, attempt, succeeded()) is Written.OK
        assert lab.store.finish(job_id, attempt - 1, succeeded()) is Written.TERMINAL
        assert lab.types(job_id).count("done") == 1

    def test_writes_about_an_unknown_job_are_fenced(self, lab: Lab) -> None:
        assert lab.store.finish("nobody", 1, succeeded()) is Written.FENCED
        assert lab.store.retry("nobody", 1, model_error(), 3) is Written.FENCED
        assert lab.store.renew({"nobody": 1}, LEASE_S) == {"nobody": Lease.LOST}


class TestFinish:
    def test_success_keeps_what_the_attempt_says(self, lab: Lab) -> None:
        job_id, attempt = lab.running()
        outcome = succeeded()
        lab.clock.advance(3)
        lab.store.finish(job_id, attempt, outcome)
        job = lab.store.get(job_id)
        assert (job.status, job.outputs, job.warnings) == (JobStatus.SUCCEEDED, outcome.outputs, outcome.warnings)
        assert (job.metrics, job.error, job.errors) == (outcome.metrics, None, ())
        assert job.finished_at is not None and job.started_at is not None
        assert (job.finished_at - job.started_at).total_seconds() == 3
        assert (job.progress.fraction, job.progress.step) == (1.0, 20)

    def test_failure_is_a_dead_letter_unless_it_is_the_requesters_fault(self, lab: Lab) -> None:
        ours, attempt = lab.running()
        lab.store.finish(ours, attempt, failed())
        theirs, attempt = lab.running()
        lab.store.finish(theirs, attempt, failed(JobError(type="invalid_image", message="no image", attempt=1)))
        assert lab.store.dead_letters() == [ours]
        job = lab.store.get(theirs)
        assert job.errors == (job.error,)

    def test_a_failure_without_an_error_is_a_fault_of_ours(self, lab: Lab) -> None:
        job_id, attempt = lab.running()
        with pytest.raises(AssertionError):
            lab.store.finish(job_id, attempt, Outcome(JobStatus.FAILED))

    def test_the_record_goes_after_its_ttl(self, make_lab: MakeLab) -> None:
        lab = make_lab(result_ttl_s=0.3)
        job_id, attempt = lab.running(group="g", key="k")
        lab.store.finish(job_id, attempt, failed())
        lab.clock.advance(0.3)
        threading.Event().wait(0.4)  # Redis' own clock counts here
        lab.store.reap(3)
        with pytest.raises(UnknownJob):
            lab.store.get(job_id)
        assert lab.store.list().jobs == lab.store.list(group="g").jobs == []
        assert lab.store.list(status=JobStatus.FAILED).jobs == []
        assert (lab.store.dead_letters(), lab.store.events(job_id)) == ([], [])
        [created] = lab.store.create([lab.new(job_id, prompt="a new body under the old id", key="k")])
        assert isinstance(created, Created) and created.is_new


class TestRetry:
    def test_errors_count_up_to_the_limit(self, lab: Lab) -> None:
        job_id = lab.create()
        answers = [
            lab.store.retry(job_id, lab.claim(job_id).attempt, model_error(str(number)), 3) for number in range(3)
        ]
        assert answers == [JobStatus.QUEUED, JobStatus.QUEUED, JobStatus.FAILED]
        job = lab.store.get(job_id)
        assert [error.message for error in job.errors] == ["0", "1", "2"]
        assert (job.error, lab.store.dead_letters()) == (job.errors[-1], [job_id])

    def test_a_requeued_job_looks_queued(self, lab: Lab) -> None:
        job_id, attempt = lab.running()
        lab.store.report({(job_id, attempt): Progress(stage="denoising", step=5, num_steps=20, fraction=0.2)})
        lab.store.retry(job_id, attempt, model_error(), 3)
        job = lab.store.get(job_id)
        assert (job.status, job.worker, job.started_at, job.attempt) == (JobStatus.QUEUED, None, None, 1)
        assert (job.progress.stage, job.progress.step, job.progress.queue_position) == ("queued", 0, 0)

    def test_a_wish_to_abort_comes_first(self, lab: Lab) -> None:
        job_id, attempt = lab.running()
        lab.want_abort(job_id)
        assert lab.store.retry(job_id, attempt, model_error(), 3) is JobStatus.ABORTED

    def test_so_does_the_deadline(self, lab: Lab) -> None:
        job_id, attempt = lab.running(deadline_s=5)
        lab.clock.advance(6)
        assert lab.store.retry(job_id, attempt, model_error(), 3) is JobStatus.FAILED
        job = lab.store.get(job_id)
        assert job.error is not None
        assert (job.error.type, [error.type for error in job.errors]) == ("deadline_exceeded", ["model_error"])


class TestRelease:
    def test_costs_nothing_but_a_number(self, lab: Lab) -> None:
        job_id = lab.create()
        for number in range(1, 31):
            claimed = lab.claim(job_id)
            assert (claimed.attempt, claimed.solo) == (number, False)
            assert lab.store.release(job_id, number) is Written.OK
        assert lab.crash(job_id, max_attempts=1) is JobStatus.QUEUED
        assert len(lab.store.get(job_id).errors) == 1

    def test_goes_back_to_its_old_place(self, lab: Lab) -> None:
        first, second = lab.create(), lab.create()
        lab.store.release(first, lab.claim(first).attempt)
        assert lab.store.get(first).progress.queue_position == 0
        assert lab.store.get(second).progress.queue_position == 1

    def test_ends_an_unwanted_job(self, lab: Lab) -> None:
        job_id, attempt = lab.running()
        lab.store.abort(job_id)
        assert lab.store.release(job_id, attempt) is Written.OK
        assert lab.status(job_id) is JobStatus.ABORTED


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


class TestRead:
    def test_position_follows_priority_then_age(self, lab: Lab) -> None:
        low, first, second, high = (lab.create(priority=priority) for priority in (0, 5, 5, 9))
        positions = [lab.store.get(job_id).progress.queue_position for job_id in (high, first, second, low)]
        assert positions == [0, 1, 2, 3]
        lab.claim(high)
        assert lab.store.get(low).progress.queue_position == 2

    def eta_s(self, lab: Lab, job_id: str) -> float | None:
        return lab.store.get(job_id).progress.eta_s

    def test_nobody_who_serves_the_model_no_eta(self, lab: Lab) -> None:
        measured, attempt = lab.running()
        lab.clock.advance(4)
        lab.store.finish(measured, attempt, succeeded())
        job_id = lab.create()
        assert self.eta_s(lab, job_id) is None
        lab.store.beat("starts", {**beat_of(), "state": "starting"}, ttl_s=30)
        lab.store.beat("leaves", {**beat_of(), "state": "draining"}, ttl_s=30)
        lab.store.beat("other", beat_of(model="other"), ttl_s=30)
        assert self.eta_s(lab, job_id) is None
        lab.store.beat("a", beat_of(), ttl_s=30)
        assert self.eta_s(lab, job_id) is not None
        lab.store.beat("a", {**beat_of(), "state": "draining"}, ttl_s=30)
        assert self.eta_s(lab, job_id) is None
        lab.store.beat("a", beat_of(), ttl_s=30)
        lab.clock.advance(30)
        assert self.eta_s(lab, job_id) is None

    def test_eta_comes_from_measured_steps(self, lab: Lab) -> None:
        """Two rows fit; a step of both takes 0.1 s, what is beside the steps 0.5 s."""
        speed = {"max_rows": 2, "step_s": 0.1, "rows": 2.0, "rest_s": 0.5}
        lab.store.beat("a", beat_of(**speed), ttl_s=30)
        first = lab.create(num_inference_steps=10)
        assert self.eta_s(lab, first) == 1.5, "rows are free: its own steps and the rest"
        second = lab.create(num_inference_steps=20, num_outputs=4)
        assert self.eta_s(lab, second) == 20 * 2 * 0.1 + 0.5, "four outputs need two rounds"
        lab.store.beat("a", beat_of(**speed, busy_rows=2, left=40), ttl_s=30)
        assert self.eta_s(lab, first) == 40 / 20 + 1.5, "what is in hand at 20 row-steps a second first"
        ahead = (10 + 80) / 2  # an average job of the queue
        assert self.eta_s(lab, second) == (40 + ahead) / 20 + 4.5
        lab.store.beat("b", beat_of(**speed, busy_rows=2, left=40), ttl_s=30)
        assert self.eta_s(lab, second) == (80 + ahead) / 40 + 4.5, "two workers share the work"
        lab.claim(first)
        assert self.eta_s(lab, second) == 80 / 40 + 4.5

    def test_eta_before_any_step_was_measured_is_the_pace_of_attempts(self, lab: Lab) -> None:
        lab.store.beat("a", beat_of(), ttl_s=90)
        assert self.eta_s(lab, lab.create()) is None
        for seconds in (10, 5):
            job_id, attempt = lab.running()
            lab.clock.advance(seconds)
            lab.store.finish(job_id, attempt, succeeded())
        running, attempt = lab.running()
        assert self.eta_s(lab, running) == 9, "the average forgets slowly"
        lab.clock.advance(4)
        assert self.eta_s(lab, running) == 5
        lab.clock.advance(6)
        assert self.eta_s(lab, running) is None, "an estimate that has run out is not zero"

    def test_a_running_job_is_as_far_as_its_worker_told(self, lab: Lab) -> None:
        lab.store.beat("a", beat_of(max_rows=2, step_s=0.1, rest_s=1.0), ttl_s=30)
        job_id, attempt = lab.running(num_inference_steps=20)
        lab.clock.advance(1)
        assert self.eta_s(lab, job_id) == 2
        told = Progress(stage="denoising", step=5, num_steps=20, fraction=0.25, eta_s=4.5)
        lab.store.report({(job_id, attempt): told})
        assert lab.store.events(job_id)[-1].data["eta_s"] == 4.5
        assert self.eta_s(lab, job_id) == 4.5
        lab.clock.advance(2)
        assert self.eta_s(lab, job_id) == 2.5
        lab.store.release(job_id, attempt)
        assert self.eta_s(lab, job_id) == 3, "back in the queue"

    def test_list_is_newest_first_in_pages(self, lab: Lab) -> None:
        job_ids = [lab.create() for _ in range(7)]
        seen, cursor = [], None
        while True:
            page = lab.store.list(limit=3, cursor=cursor)
            seen += [job.id for job in page.jobs]
            cursor = page.cursor
            if cursor is None:
                break
            lab.create()  # a newer one does not shift the pages
        assert seen == job_ids[::-1]

    @pytest.mark.parametrize("cursor", ["", "x", "-1", "1e3", "+inf", "٣", "9" * 40])
    def test_a_made_up_cursor_is_refused(self, lab: Lab, cursor: str) -> None:
        with pytest.raises(InvalidRequest, match="cursor"):
            lab.store.list(cursor=cursor)

    def test_list_by_status_and_group(self, lab: Lab) -> None:
        queued = lab.create(group="g")
        running, attempt = lab.running(group="g")
        other, _ = lab.running()
        assert [job.id for job in lab.store.list(status=JobStatus.RUNNING).jobs] == [other, running]
        assert [job.id for job in lab.store.list(group="g").jobs] == [running, queued]
        assert [job.id for job in lab.store.list(group="g", status=JobStatus.RUNNING).jobs] == [running]
        lab.store.finish(running, attempt, succeeded())
        assert [job.id for job in lab.store.list(status=JobStatus.SUCCEEDED).jobs] == [running]
        assert lab.store.list(status=JobStatus.ABORTED).jobs == lab.store.list(group="nobody's").jobs == []

    def test_requests_survive_whole(self, lab: Lab) -> None:
        fields = {"prompt": 'Grüße, 世界 🎈\n"x" \\', "metadata": {"a": [1, None, {"b": "é"}]}, "num_outputs": 4}
        [created] = lab.store.create([lab.new("a", **fields, seed=2**63 - 4, output_prefix="ü b/c")])
        assert isinstance(created, Created)
        assert (
            lab.store.get("a").request
            == created.job.request
            == lab.new("a", **fields, seed=2**63 - 4, output_prefix="ü b/c").request
        )

    def test_queues(self, lab: Lab) -> None:
        lab.create(priority=0)
        lab.clock.advance(2)
        lab.create(priority=9)
        lab.running()
        lab.clock.advance(1)
        [tiny, other] = lab.store.queues(["tiny", "unheard-of"])
        assert (tiny.queued, tiny.running, tiny.oldest_s) == (2, 1, 3)
        assert (other.queued, other.running, other.oldest_s) == (0, 0, None)
        assert tiny.priorities == (PriorityStats(9, 1, 1), PriorityStats(0, 1, 3))
        assert other.priorities == ()

    def test_a_worker_that_loads_its_models_is_not_at_work_yet(self, lab: Lab) -> None:
        lab.store.beat("w", {"name": "w", "state": "starting"}, ttl_s=10)
        assert lab.store.workers() == []
        assert lab.store.explain(lab.create()).workers == [{"name": "w", "state": "starting"}]

    def test_a_worker_vanishes_after_its_last_beat(self, lab: Lab) -> None:
        lab.store.beat("w", {"name": "w", "rows": 3}, ttl_s=10)
        lab.store.beat("v", {"name": "v"}, ttl_s=20)
        assert [worker["name"] for worker in lab.store.workers()] == ["w", "v"]
        lab.clock.advance(10)
        assert lab.store.workers() == [{"name": "v"}]

    def test_dead_letters_newest_first(self, lab: Lab) -> None:
        job_ids = []
        for _ in range(3):
            job_id, attempt = lab.running()
            lab.store.finish(job_id, attempt, failed())
            job_ids.append(job_id)
            lab.clock.advance(1)
        assert lab.store.dead_letters(limit=2) == [job_ids[2], job_ids[1]]
        assert lab.store.drop_dead_letters([job_ids[2], "nobody"]) == 1
        assert lab.store.drop_dead_letters([]) == 0
        assert lab.store.dead_letters() == [job_ids[1], job_ids[0]]
        assert lab.status(job_ids[2]) is JobStatus.FAILED


class TestEvents:
    def test_tell_the_whole_life_in_order(self, lab: Lab) -> None:
        job_id, attempt = lab.running()
        lab.store.report({(job_id, attempt): Progress(stage="denoising", step=1, num_steps=20, fraction=0.05)})
        lab.store.preview(job_id, attempt, {"png": "first"})
        lab.store.preview(job_id, attempt, {"png": "second"})
        lab.store.finish(job_id, attempt, succeeded())
        events = lab.store.events(job_id)
        assert [event.type for event in events] == ["status", "status", "progress", "preview", "status", "done"]
        assert [event.data.get("status") for event in events] == ["queued", "running", None, None, *["succeeded"] * 2]
        assert events[2].data == {"stage": "denoising", "step": 1, "num_steps": 20, "fraction": 0.05}
        assert events[3].data == {"png": "second"}  # an older preview is of no use, and large
        assert events[4].data == {"status": "succeeded", "attempt": 1, "worker": WORKER}

    def test_resume_after_an_id(self, lab: Lab) -> None:
        job_id, attempt = lab.running()
        seen = lab.store.events(job_id)
        assert lab.store.events(job_id, after=seen[-1].id) == []
        lab.store.finish(job_id, attempt, succeeded())
        assert [event.type for event in lab.store.events(job_id, after=seen[-1].id)] == ["status", "done"]

    def test_blocks_until_something_happens(self, lab: Lab) -> None:
        job_id = lab.create()
        after = lab.store.events(job_id)[-1].id
        timer = threading.Timer(0.1, lab.store.abort, [job_id])
        timer.start()
        assert lab.store.events(job_id, after=after, block_s=10)
        timer.join()

    def test_blocks_no_longer_than_asked(self, lab: Lab) -> None:
        assert lab.store.events("nobody", block_s=0.05) == []

    def test_are_bounded(self, lab: Lab) -> None:
        job_id, attempt = lab.running()
        for step in range(600):
            lab.store.report({(job_id, attempt): Progress(stage="denoising", step=step, num_steps=600)})
        events = lab.store.events(job_id)
        assert len(events) < 450
        assert events[-1].data["step"] == 599


class TestTotals:
    def counted(self, lab: Lab) -> dict[str, int]:
        return {name.removeprefix("tiny "): count for name, count in lab.store.totals().tally.fields.items()}

    def test_every_move_is_counted_once(self, lab: Lab) -> None:
        lab.store.abort(lab.create())
        ended, attempt = lab.running()
        lab.store.finish(ended, attempt, succeeded())
        lab.store.finish(ended, attempt, succeeded())  # its first answer was lost
        given, attempt = lab.running()
        lab.store.release(given, attempt)
        assert lab.store.retry(given, lab.claim(given).attempt, model_error(), 2) is JobStatus.QUEUED
        lab.crash(given)
        assert lab.store.retry(given, lab.claim(given).attempt, model_error(), 2) is JobStatus.FAILED
        counted = {name: count for name, count in self.counted(lab).items() if not name.startswith("job")}
        assert counted == {
            "created": 3,
            "attempts": 5,
            "given_back": 1,
            "lost": 1,
            "retried model_error": 1,
            "ended aborted": 1,
            "ended succeeded": 1,
            "ended failed model_error": 1,
        }
        assert lab.store.totals().dead_letters == 1

    def test_times_go_into_buckets_and_device_time_adds_up(self, lab: Lab) -> None:
        metrics = JobMetrics(queue_ms=30, denoise_ms=1000, decode_ms=1e9, total_ms=1040, device_seconds=0.75)
        for outcome in (Outcome(JobStatus.ABORTED, metrics=metrics), Outcome(JobStatus.SUCCEEDED, metrics=metrics)):
            job_id, attempt = lab.running()
            lab.store.finish(job_id, attempt, outcome)
        job_id, attempt = lab.running()
        lab.store.retry(job_id, attempt, model_error(), 3, metrics)
        tally = lab.store.totals().tally
        assert list(tally.device_seconds()) == [("tiny", 2.25)]
        times = {stage: times for _, stage, times in tally.stage_times()}
        assert set(times) == {"queue", "denoise", "decode"}
        assert (times["queue"].counts[2], times["queue"].total) == (3, 0.09)
        assert times["denoise"].counts[6] == 3, "a bound belongs to its own bucket"
        assert times["decode"].counts[-1] == 3, "above every bound"
        [(model, job_times)] = tally.job_times()
        assert (model, sum(job_times.counts), job_times.total) == ("tiny", 3, 3.12)

    def test_metrics_of_jobs_that_did_not_succeed(self, lab: Lab) -> None:
        aborted = lab.create()
        lab.clock.advance(2)
        lab.store.abort(aborted)
        assert lab.store.get(aborted).metrics == JobMetrics(queue_ms=2000, total_ms=2000)
        lost = lab.create()
        lab.clock.advance(1)
        lab.crash(lost, max_attempts=-9)
        assert lab.store.get(lost).metrics == JobMetrics(queue_ms=1000, total_ms=1000 + 1000 * LEASE_S)
        known = JobMetrics(denoise_ms=5, total_ms=9, device_seconds=0.1)
        failing, attempt = lab.running()
        lab.store.retry(failing, attempt, model_error(), 1, known)
        assert lab.store.get(failing).metrics == known


class TestExplain:
    def test_tells_what_one_look_finds(self, lab: Lab) -> None:
        with pytest.raises(UnknownJob):
            lab.store.explain("nobody")
        lab.store.beat("w", beat_of(), ttl_s=100)
        job_id = lab.create()
        lab.crash(job_id)
        lab.crash(job_id)
        lab.crash(job_id, alone=True)
        facts = lab.store.explain(job_id)
        assert (facts.job, facts.crashes, facts.solo_crashes) == (lab.store.get(job_id), 2, 1)
        assert (facts.abort_wanted, facts.batching, facts.workers) == (False, None, [beat_of()])
        attempt = lab.claim(job_id).attempt
        lab.store.abort(job_id)
        assert lab.store.explain(job_id).abort_wanted
        batching = Batching(mode="step", rows_mean=1.5, rows_max=2, apart=("height",))
        lab.store.finish(job_id, attempt, Outcome(JobStatus.ABORTED, batching=batching))
        assert lab.store.explain(job_id).batching == batching

    def test_a_trace_and_the_time_of_queuing_come_with_the_claim(self, lab: Lab) -> None:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        lab.store.create([dataclasses.replace(lab.new("a"), trace=trace)])
        lab.clock.advance(3)
        first = lab.claim("a")
        assert (first.trace, first.queued_at) == (trace, first.job.created_at)
        lab.store.release("a", first.attempt)
        lab.clock.advance(3)
        again = lab.claim("a")
        assert again.queued_at is not None and again.job.started_at is not None
        assert (again.job.started_at - again.queued_at).total_seconds() == 3
        assert again.trace == trace
        assert lab.claim(lab.create()).trace is None

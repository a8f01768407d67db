"""One body over both stores: how a job is made, claimed, fenced and ended, rule by rule of `tasks/store.py`."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tasks.errors import IdempotencyConflict, QueueFull, UnknownJob
from tasks.job import JobError, JobStatus, Progress
from tasks.store import Created, Lease, NewJob, NotClaimed, Outcome, Written
from tasks.submission import new_job
from tests.contract.stores import (
    LEASE_S,
    MODELS,
    WORKER,
    Lab,
    failed,
    model_error,
    succeeded,
)

MakeLab = Callable[..., Lab]


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

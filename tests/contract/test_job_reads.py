"""One body over both stores: what readers are told of jobs, queues and workers."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

import pytest

from tasks.beats import silent_s
from tasks.errors import InvalidRequest, UnknownJob
from tasks.job import Batching, JobMetrics, JobStatus, Progress
from tasks.store import Created, Outcome, PriorityStats
from tests.contract.stores import (
    LEASE_S,
    WORKER,
    Lab,
    beat_of,
    failed,
    model_error,
    succeeded,
)

MakeLab = Callable[..., Lab]


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
        assert self.eta_s(lab, first) == (40 + 10) / 20 + 0.5, "what is in hand and its own, at 20 row-steps a second"
        ahead = (10 + 80) / 2  # an average job of the queue
        assert self.eta_s(lab, second) == (40 + ahead + 80) / 20 + 0.5
        lab.store.beat("b", beat_of(**speed, busy_rows=2, left=40), ttl_s=30)
        assert self.eta_s(lab, second) == (80 + ahead + 80) / 40 + 0.5, "two workers share the work"
        lab.claim(first)
        assert self.eta_s(lab, second) == 4.5, "its own two rounds"

    def test_what_a_worker_claims_counts_before_its_next_beat(self, lab: Lab) -> None:
        speed = {"max_rows": 2, "step_s": 0.1, "rows": 2.0}
        lab.store.beat(WORKER, beat_of(**speed), ttl_s=30)
        first, second, last = (lab.create(num_inference_steps=10, num_outputs=2) for _ in range(3))
        assert self.eta_s(lab, first) == 1.0
        lab.claim(first)
        assert self.eta_s(lab, second) == 1 + 1.0, "the rows are taken, and 20 row-steps before it"
        assert lab.take() == second
        assert self.eta_s(lab, last) == 2 + 1.0
        lab.store.beat(WORKER, beat_of(**speed, busy_rows=4, left=30), ttl_s=30)
        assert self.eta_s(lab, last) == 1.5 + 1.0, "the beat knows better"
        lab.store.leave(WORKER)
        lab.store.beat(WORKER, beat_of(**speed), ttl_s=30)
        assert self.eta_s(lab, last) == 1.0

    def test_a_crowded_worker_does_not_hide_a_free_one(self, lab: Lab) -> None:
        speed = {"max_rows": 2, "step_s": 0.1, "rows": 2.0}
        lab.store.beat("a", beat_of(**speed, busy_rows=9, left=90), ttl_s=30)
        lab.store.beat("b", beat_of(**speed), ttl_s=30)
        assert self.eta_s(lab, lab.create(num_inference_steps=10)) == 1.0

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

    def test_a_beat_has_an_age_if_it_says_for_how_long_it_counts(self, lab: Lab) -> None:
        lab.store.beat("w", {"name": "w", "ttl_s": 8.0}, ttl_s=8)
        ages = []
        for _ in range(3):
            ages.append([(worker["beat_age_s"], silent_s(worker)) for worker in lab.store.workers()])
            lab.clock.advance(2.5)
        assert ages == [[(0, None)], [(2.5, None)], [(5, 5)]]
        assert lab.store.explain(lab.create()).workers[0]["beat_age_s"] == 7.5

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
        batching = Batching(mode="step", rows_mean=1.5, rows_max=2, apart=("height",), mates=("m",))
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

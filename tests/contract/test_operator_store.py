"""One body over both stores: dead letters, their retries, litter and drains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from tasks.dead_letters import LetterFilter
from tasks.errors import InvalidRequest, QueueFull, SafelightError, UnknownDeadLetter, UnknownJob
from tasks.job import JobError, JobStatus
from tasks.models import ModelSpec
from tasks.operator_client import repeated
from tasks.store import Created, Drained, NewJob, Outcome
from tests.contract.stores import LEASE_S, MODELS, WORKER, Lab, failed, model_error, redis_lab, succeeded

MakeLab = Callable[..., Lab]
DAY_S = 86_400.0


def dead(lab: Lab, kind: str = "model_error", **fields: Any) -> str:
    job_id, attempt = lab.running(**fields)
    error = JobError.model_validate({"type": kind, "message": "it broke", "attempt": attempt})
    lab.store.finish(job_id, attempt, Outcome(JobStatus.FAILED, error=error, traceback="Traceback: x"))
    return job_id


def again(lab: Lab, job_id: str, new_id: str = "new") -> Created | SafelightError:
    new = repeated(lab.store.dead_letter(job_id), MODELS)
    [answer] = lab.store.create([NewJob(new_id, new.request, new.digest, retry_of=new.retry_of)])
    return answer


class TestLetter:
    def test_says_what_each_failed_attempt_left(self, lab: Lab) -> None:
        job_id = lab.create()
        lab.crash(job_id)
        lab.store.retry(job_id, lab.claim(job_id).attempt, model_error("one"), 3, traceback="Traceback: one 🎈\n  y")
        lab.store.release(job_id, lab.claim(job_id).attempt)
        lab.clock.advance(1)
        lab.store.finish(job_id, lab.claim(job_id).attempt, failed(model_error("two")))
        letter = lab.store.dead_letter(job_id)
        assert letter.job == lab.store.get(job_id)
        assert letter.died_at == letter.job.finished_at
        told = [(fault.attempt, fault.type, fault.traceback) for fault in letter.faults]
        assert told == [
            (1, "worker_lost", None),
            (2, "model_error", "Traceback: one 🎈\n  y"),
            (4, "model_error", None),
        ]
        assert [fault.message for fault in letter.faults][1:] == ["one", "two"]
        assert {fault.worker for fault in letter.faults} == {WORKER}
        assert (letter.faults[2].failed_at - letter.faults[1].failed_at).total_seconds() == 1

    def test_tracebacks_are_told_on_demand_only(self, lab: Lab) -> None:
        letter = lab.store.dead_letter(dead(lab))
        assert "Traceback" not in str(letter.to_json())
        assert letter.to_json(tracebacks=True)["faults"][0]["traceback"] == "Traceback: x"
        assert "Traceback" not in str(lab.store.get(letter.id).to_json())

    def test_keeps_the_last_ten_faults(self, lab: Lab) -> None:
        job_id = lab.create()
        for number in range(1, 13):
            lab.store.retry(job_id, lab.claim(job_id).attempt, model_error(str(number)), 12)
        letter = lab.store.dead_letter(job_id)
        assert [fault.message for fault in letter.faults] == [str(number) for number in range(3, 13)]
        assert len(letter.job.errors) == 12

    @pytest.mark.parametrize("kind", ["invalid_request", "invalid_image", "deadline_exceeded"])
    def test_the_requesters_own_fault_is_none(self, lab: Lab, kind: str) -> None:
        job_id = dead(lab, kind)
        with pytest.raises(UnknownDeadLetter):
            lab.store.dead_letter(job_id)

    @pytest.mark.parametrize("kind", ["worker_lost", "internal", "out_of_memory", "model_error", "upload_failed"])
    def test_what_an_operator_can_act_on_is(self, lab: Lab, kind: str) -> None:
        assert lab.store.dead_letter(dead(lab, kind)).faults

    def test_a_job_that_is_alive_or_succeeded_in_the_end_is_none(self, lab: Lab) -> None:
        job_id = lab.create()
        lab.store.retry(job_id, lab.claim(job_id).attempt, model_error(), 3, traceback="Traceback: x")
        with pytest.raises(UnknownDeadLetter):
            lab.store.dead_letter(job_id)
        lab.store.finish(job_id, lab.claim(job_id).attempt, succeeded())
        with pytest.raises(UnknownDeadLetter):
            lab.store.dead_letter(job_id)


class TestFind:
    def test_newest_first_in_pages_that_a_purge_does_not_shift(self, lab: Lab) -> None:
        job_ids = []
        for number in range(9):
            job_ids.append(dead(lab))
            lab.clock.advance(number % 3)  # some die at the same instant
        order = list(lab.store.dead_letters())
        seen: list[str] = []
        cursor = None
        while True:
            page = lab.store.find_dead_letters(limit=2, cursor=cursor)
            seen += [letter.id for letter in page.letters]
            lab.store.drop_dead_letters([letter.id for letter in page.letters])
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == order
        assert sorted(seen) == sorted(job_ids)

    def test_by_error_and_age(self, lab: Lab) -> None:
        old = dead(lab, "internal")
        lab.clock.advance(60)
        young = dead(lab, "worker_lost")
        lab.clock.advance(1)

        def found(**fields: Any) -> list[str]:
            return [letter.id for letter in lab.store.find_dead_letters(LetterFilter(**fields)).letters]

        assert found() == [young, old]
        assert found(error_type="internal") == [old]
        assert found(error_type="upload_failed") == found(model="another") == []
        assert found(model="tiny") == [young, old]
        assert (found(older_than_s=60), found(newer_than_s=60)) == ([old], [young])
        assert found(older_than_s=1, newer_than_s=61) == [young, old]
        assert found(older_than_s=2, newer_than_s=60) == []

    @pytest.mark.parametrize("age_s", [-1.0, 1.3e308, float("inf"), float("nan")])
    def test_an_age_that_is_none_is_refused(self, age_s: float) -> None:
        for name in ("older_than_s", "newer_than_s"):
            with pytest.raises(InvalidRequest, match=name):
                LetterFilter(**{name: age_s})

    @pytest.mark.parametrize("cursor", ["", "x", "1-", "-a", "1e3-a", "٣-a", "9" * 40 + "-a"])
    def test_a_made_up_cursor_is_refused(self, lab: Lab, cursor: str) -> None:
        with pytest.raises(InvalidRequest, match="cursor"):
            lab.store.find_dead_letters(cursor=cursor)


class TestRetry:
    def test_is_a_new_job_of_the_same_request_that_names_its_origin(self, lab: Lab) -> None:
        job_id = dead(lab, group="g", deadline_s=60, metadata={"a": 1}, webhook_url="https://example.org/x")
        before = lab.store.get(job_id)
        lab.clock.advance(5)
        created = again(lab, job_id)
        assert isinstance(created, Created) and created.is_new
        assert created.job == lab.store.get("new")
        assert (created.job.request, created.job.retry_of) == (before.request, job_id)
        assert (created.job.status, created.job.attempt, created.job.errors) == (JobStatus.QUEUED, 0, ())
        assert lab.store.get(job_id) == before
        assert lab.store.dead_letters() == []
        lab.clock.advance(59)  # the deadline counts from the retry
        assert lab.claim("new").job.retry_of == job_id

    def test_happens_once(self, lab: Lab) -> None:
        job_id = dead(lab)
        letter = repeated(lab.store.dead_letter(job_id), MODELS)
        first, second = (NewJob(new_id, letter.request, letter.digest, retry_of=job_id) for new_id in ("a", "b"))
        answers = lab.store.create([first, second, first])
        assert [type(answer) for answer in answers] == [Created, UnknownDeadLetter, Created]
        assert not answers[2].is_new  # type: ignore[union-attr]  # its first answer may have been lost
        with pytest.raises(UnknownJob):
            lab.store.get("b")

    def test_of_what_is_no_letter_is_refused(self, lab: Lab) -> None:
        alive = lab.create()
        for origin in (alive, "nobody"):
            [answer] = lab.store.create([NewJob("n", lab.new().request, "d", retry_of=origin)])
            assert isinstance(answer, UnknownDeadLetter)

    def test_waits_for_room_in_the_queue(self, make_lab: MakeLab) -> None:
        lab = make_lab(max_queued=1)
        job_id = dead(lab)
        other = lab.create()
        assert isinstance(again(lab, job_id), QueueFull)
        assert lab.store.dead_letters() == [job_id]
        lab.claim(other)
        assert isinstance(again(lab, job_id), Created)

    def test_never_aborts_what_is_newer(self, lab: Lab) -> None:
        job_id = dead(lab, group="g", supersede=True)
        newer = lab.create(group="g", supersede=True)
        again(lab, job_id)
        assert lab.status(newer) is JobStatus.QUEUED

    def test_a_model_that_is_no_longer_served_keeps_the_letter(self, lab: Lab) -> None:
        letter = lab.store.dead_letter(dead(lab))
        others = type(MODELS)((ModelSpec.model_validate({**MODELS.default.model_dump(), "name": "other"}),))
        with pytest.raises(InvalidRequest, match="model"):
            repeated(letter, others)


class TestRetention:
    def test_a_letter_outlives_the_results_of_others(self, make_lab: MakeLab) -> None:
        lab = make_lab(result_ttl_s=DAY_S, dead_letter_ttl_s=10 * DAY_S)
        job_id, mine = dead(lab), dead(lab, "invalid_image")
        lab.clock.advance(9 * DAY_S)
        lab.store.reap(3)
        assert lab.store.dead_letter(job_id).faults
        assert [job.id for job in lab.store.list().jobs if job.id != mine] == [job_id]
        lab.clock.advance(2 * DAY_S)
        lab.store.reap(3)
        assert lab.store.dead_letters() == []
        with pytest.raises(UnknownDeadLetter):
            lab.store.dead_letter(job_id)

    def test_never_a_shorter_time_than_results(self, make_lab: MakeLab) -> None:
        lab = make_lab(result_ttl_s=10 * DAY_S, dead_letter_ttl_s=DAY_S)
        job_id = dead(lab)
        lab.clock.advance(9 * DAY_S)
        lab.store.reap(3)
        assert lab.store.dead_letters() == [job_id]

    def test_a_purged_one_lives_as_any_job(self, make_lab: MakeLab) -> None:
        lab = make_lab(result_ttl_s=DAY_S, dead_letter_ttl_s=10 * DAY_S)
        early, late = dead(lab), dead(lab)
        lab.clock.advance(DAY_S / 2)
        assert lab.store.drop_dead_letters([early, "nobody"]) == 1
        assert lab.status(early) is JobStatus.FAILED
        lab.clock.advance(DAY_S)
        assert lab.store.drop_dead_letters([late]) == 1
        lab.store.reap(3)
        with pytest.raises(UnknownJob):
            lab.store.get(late)
        assert late not in [job.id for job in lab.store.list(status=JobStatus.FAILED).jobs]

    def test_a_new_job_under_an_old_letters_id_is_no_letter(self, make_lab: MakeLab) -> None:
        lab = make_lab(result_ttl_s=DAY_S, dead_letter_ttl_s=10 * DAY_S)
        job_id = dead(lab)
        lab.clock.advance(DAY_S)
        lab.store.drop_dead_letters([job_id])
        lab.create(job_id, prompt="another")
        assert lab.store.dead_letters() == []
        lab.clock.advance(10 * DAY_S)
        lab.store.reap(3)
        assert lab.status(job_id) is JobStatus.QUEUED


class TestLitter:
    def test_jobs_that_ended_by_other_hands_are_swept(self, lab: Lab) -> None:
        back, lost, released = (lab.create() for _ in range(3))
        lab.store.release(back, lab.claim(back).attempt)
        lab.store.abort(back)
        lab.claim(lost)
        lab.want_abort(lost)
        lab.clock.advance(LEASE_S)
        lab.store.reap(3)
        attempt = lab.claim(released).attempt
        lab.store.abort(released)
        lab.store.release(released, attempt)
        assert lab.store.litter() == [], "an upload that nobody waits for may still be on its way"
        lab.clock.advance(120)
        assert sorted(lab.store.litter(10, 60)) == sorted([back, lost, released])
        assert lab.store.litter(10, 60) == []
        lab.store.swept([back])
        lab.store.swept([])
        lab.clock.advance(60)
        assert sorted(lab.store.litter(10, 60)) == sorted([lost, released]), "what could not be deleted comes again"

    def test_jobs_that_never_left_anything_are_not(self, lab: Lab) -> None:
        lab.store.abort(lab.create())
        job_id, attempt = lab.running()
        lab.store.finish(job_id, attempt, succeeded())
        dead(lab)
        lab.clock.advance(1_000)
        assert lab.store.litter() == []

    def test_a_piece_at_a_time(self, lab: Lab) -> None:
        for _ in range(5):
            job_id = lab.create()
            lab.store.release(job_id, lab.claim(job_id).attempt)
            lab.store.abort(job_id)
        lab.clock.advance(120)
        assert [len(lab.store.litter(2, 60)) for _ in range(4)] == [2, 2, 1, 0]


class TestDrain:
    def test_is_heard_at_each_beat_of_that_process_alone(self, lab: Lab) -> None:
        for name in ("gpu:7:ab1", "gpu:8:ab2", "gpu-2:9:ab3", "a:gpu:9:ab4"):
            assert lab.store.beat(name, {"name": name}, 10) is False
        assert lab.store.drain("gpu").asked == ["gpu:7:ab1", "gpu:8:ab2"]
        for _ in range(2):
            assert lab.store.beat("gpu:7:ab1", {}, 10) is True
        assert lab.store.beat("gpu-2:9:ab3", {}, 10) is lab.store.beat("a:gpu:9:ab4", {}, 10) is False
        assert lab.store.beat("gpu:7:ab9", {}, 10) is False, "a later process, even of the same id"

    def test_by_whole_name_or_all(self, lab: Lab) -> None:
        names = ["a:1:f", "b:2:e"]
        for name in names:
            lab.store.beat(name, {}, 10)
        assert lab.store.drain("b:2:e") == Drained(["b:2:e"], names)
        assert lab.store.drain("nobody") == Drained([], names)
        assert lab.store.drain(None).asked == names
        lab.clock.advance(10)
        assert lab.store.drain(None) == Drained([], [])

    def test_a_worker_that_left_is_gone_at_once_and_the_wish_with_it(self, lab: Lab) -> None:
        lab.store.beat("a:1:f", {"name": "a:1:f"}, 10)
        lab.store.drain("a")
        lab.store.leave("a:1:f")
        assert lab.store.workers() == []
        assert lab.store.beat("a:1:f", {}, 10) is False


def test_evicted_records_fill_no_queue(redis_url: str) -> None:
    lab = redis_lab(redis_url, max_queued=2)
    server = redis.Redis.from_url(redis_url, decode_responses=True)
    queued, running, letter = lab.create(group="g"), lab.running()[0], dead(lab)
    for job_id in (queued, running, letter):
        server.delete(f"safelight:job:{job_id}")
    lab.clock.advance(LEASE_S)
    lab.store.reap(3)
    assert lab.store.stale_hints() == []
    assert lab.store.find_dead_letters().letters == lab.store.list().jobs == lab.store.list(group="g").jobs == []
    assert lab.store.list(status=JobStatus.FAILED).jobs == []
    [stats] = lab.store.queues(["tiny"])
    assert (stats.queued, stats.running) == (0, 0)
    indexes = ["queue:tiny", "running:tiny", "hints", "leases", "jobs", "dead", "group:g"]
    indexes += ["status:queued", "status:running", "status:failed"]
    assert [name for name in indexes if server.exists(f"safelight:{name}")] == []
    lab.clock.advance(120)
    assert sorted(lab.store.litter()) == sorted([queued, running])
    assert all(isinstance(each, Created) for each in lab.store.create([lab.new(), lab.new()]))


def test_the_oldest_letters_make_room(redis_url: str) -> None:
    """By a bound of its own, so that a flood of failures cannot fill Redis; a full index here, from outside."""
    lab = redis_lab(redis_url, dead_letter_ttl_s=10 * DAY_S)
    server = redis.Redis.from_url(redis_url, decode_responses=True)
    oldest = dead(lab)
    lab.clock.advance(1)
    server.zadd("safelight:dead", {f"x{number}": lab.clock.ms for number in range(9_999)})
    newest = dead(lab)
    assert server.zcard("safelight:dead") == 10_000
    with pytest.raises(UnknownDeadLetter):
        lab.store.dead_letter(oldest)
    assert lab.status(oldest) is JobStatus.FAILED
    assert server.pttl(f"safelight:job:{oldest}") <= 3_600_000
    assert server.exists(f"safelight:faults:{oldest}") == 0
    assert lab.store.dead_letter(newest)

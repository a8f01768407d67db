"""Finished outputs and a store that refuses, over real servers: what is kept, sent home, cleared, and told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.job import JobError, JobStatus
from tasks.local.servers import S3Server
from tasks.settings import Settings
from tasks.store import Outcome
from tests.e2e.nodes import eventually
from tests.integration.test_artifacts import Front, front_of
from tests.integration.worker_here import WorkerHere, worker_here
from worker.attempt import Stop
from worker.generate import SET_ASIDE
from worker.salvage import Salvager
from worker.spool import Spool, system_of
from worker.uploads import Uploader

STEPS = 2


class Stand:
    """A worker in this process, the spool, and the way to the store."""

    def __init__(self, here: WorkerHere, front: Front, spool: Spool, uploader: Uploader, steps: Path) -> None:
        self.here, self.front, self.spool, self.uploader, self._steps = here, front, spool, uploader, steps
        self.salvager = Salvager(
            here.client.store, spool, here.attempts, here.generate.bring_home, lambda: not uploader.backlog.is_full
        )

    def submit(self) -> str:
        return self.here.client.submit({"prompt": "a boat", "num_inference_steps": STEPS}).id

    def store_is_away(self, status: int = 503) -> None:
        self.front.methods, self.front.fail_with = ("PUT",), status

    def store_is_back(self) -> None:
        self.front.fail_with = None

    def status(self, job_id: str) -> str:
        return self.here.client.get(job_id).status

    def wait_status(self, job_id: str, status: str) -> None:
        eventually(lambda: self.status(job_id) == status, 20, f"{job_id} is {status}")

    def num_steps(self) -> int:
        return len(self._steps.read_text("utf-8").splitlines())


@pytest.fixture
def stand(settings: Settings, s3_server: S3Server, tmp_path: Path) -> Iterator[Stand]:
    with make_stand(settings, s3_server, tmp_path) as made:
        yield made


@contextmanager
def make_stand(
    settings: Settings, s3_server: S3Server, home: Path, *, spool_folder: Path | None = None, max_jobs: int = 10
) -> Iterator[Stand]:
    steps = home / "steps.log"
    steps.touch()
    with front_of(s3_server.port) as front:
        own = settings.model_copy(update={"s3_endpoint_url": front.url})
        spool = Spool(spool_folder or home / "spool", 10_000_000, system_of(own))
        with worker_here(own, fake=f"step_log={steps}") as here:
            uploader = Uploader(here.artifacts, "", 30.0, figures=here.figures, spool=spool, max_waiting=max_jobs)
            here.generate._uploader = here.generate._settler._uploader = uploader
            try:
                yield Stand(here, front, spool, uploader, steps)
            finally:
                front.fail_with = None
                eventually(lambda: not len(here.attempts), 20, "all attempts end")


def test_a_job_that_was_refused_is_retried_without_rendering_again(stand: Stand) -> None:
    """Report replicate/cog#1981: status must follow upload."""
    stand.store_is_away(403)
    letter = stand.submit()
    assert stand.here.run(letter) == "failed"
    failed = stand.here.client.get(letter)
    assert failed.error is not None
    assert (failed.error.type, failed.error.retryable) == ("upload_failed", True)
    stand.salvager.tick()
    assert [entry.has_failed for entry in stand.spool.entries()] == [True]
    stand.store_is_back()
    retried = stand.here.client.retry_dead_letter(letter)
    assert stand.here.run(retried.id) == "succeeded"
    done = stand.here.client.get(retried.id)
    assert f"/{retried.id}/1/" in done.outputs[0].uri
    assert stand.here.artifacts.get(done.outputs[0].uri, 1_000_000)
    assert stand.num_steps() == STEPS
    assert stand.spool.entries() == []


def test_two_errors_then_success_is_one_success(stand: Stand) -> None:
    stand.front.methods, stand.front.statuses = ("PUT",), [500, 500]
    job_id = stand.submit()
    assert stand.here.run(job_id) == "succeeded"
    assert stand.num_steps() == STEPS
    assert stand.spool.entries() == []


def test_a_delivery_does_not_wait_for_the_store_and_its_job_ends_well(stand: Stand) -> None:
    stand.store_is_away()
    job_id = stand.submit()
    assert stand.here.run(job_id) == SET_ASIDE
    assert stand.status(job_id) == "running"
    assert stand.here.attempts.live()[0].seal() is None  # type: ignore[misc] # no pixels are held
    stand.store_is_back()
    stand.wait_status(job_id, "succeeded")
    assert stand.num_steps() == STEPS


def test_an_abort_reaches_a_job_that_was_set_aside(stand: Stand) -> None:
    stand.store_is_away()
    job_id = stand.submit()
    assert stand.here.run(job_id) == SET_ASIDE
    [attempt] = stand.here.attempts.live()
    attempt.stop(Stop.ABORT)
    stand.wait_status(job_id, "aborted")
    eventually(lambda: stand.spool.entries() == [], 5, "its outputs go")


def test_the_bound_is_told_in_beats_and_by_explain(settings: Settings, s3_server: S3Server, tmp_path: Path) -> None:
    with make_stand(settings, s3_server, tmp_path, max_jobs=2) as stand:
        stand.store_is_away()
        jobs = [stand.submit() for _ in range(3)]
        assert [stand.here.run(job_id) for job_id in jobs[:2]] == [SET_ASIDE] * 2
        stand.here.announcer.beat(stand.here.client.store)
        told = stand.here.announcer.info()["uploads"]
        assert (told["waiting"], told["full"]) == (2, True)
        assert told["spool_bytes"] == stand.spool.size_bytes > 0
        explained = stand.here.client.explain(jobs[2])
        assert [reason.code for reason in explained.reasons] == ["store_away"]
        assert "2 finished jobs wait" in explained.reasons[0].message
        stand.store_is_back()
        for job_id in jobs[:2]:
            stand.wait_status(job_id, "succeeded")
        assert not stand.uploader.backlog.is_full


def test_without_a_disk_a_job_waits_in_memory_and_ends_well(
    settings: Settings, s3_server: S3Server, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with make_stand(settings, s3_server, tmp_path, spool_folder=tmp_path / "file" / "spool") as stand:
        stand.front.methods, stand.front.statuses = ("PUT",), [503] * 4
        job_id = stand.submit()
        assert stand.here.run(job_id) == "succeeded"
        assert stand.num_steps() == STEPS
        assert not stand.uploader.backlog.is_full


def left_in_the_spool(stand: Stand) -> str:
    """A queued job whose outputs an earlier process left behind."""
    stand.store_is_away()
    job_id = stand.submit()
    assert stand.here.run(job_id) == SET_ASIDE
    stand.here.attempts.live()[0].stop(Stop.DRAIN)
    stand.wait_status(job_id, "queued")
    eventually(lambda: not len(stand.here.attempts), 5, "the attempt ends")
    stand.store_is_back()
    return job_id


def test_what_is_queued_again_goes_home_without_its_message(stand: Stand) -> None:
    job_id = left_in_the_spool(stand)
    assert len(stand.spool.entries()) == 1
    stand.salvager.tick()
    stand.wait_status(job_id, "succeeded")
    done = stand.here.client.get(job_id)
    assert done.attempt == 2 and "/2/" in done.outputs[0].uri
    assert done.metrics.device_seconds is not None
    assert stand.num_steps() == STEPS


def ended(status: JobStatus, error: JobError | None = None) -> Callable[[Stand, str], None]:
    def end(stand: Stand, job_id: str) -> None:
        claimed = stand.here.client.store.claim(job_id, "other", 30)
        stand.here.client.store.finish(job_id, claimed.attempt, Outcome(status, error=error))  # type: ignore[union-attr]

    return end


def gone(stand: Stand, job_id: str) -> None:
    stand.here.client._redis.delete(f"safelight:job:{job_id}")


@pytest.mark.parametrize(
    ("end", "is_kept"),
    [
        (ended(JobStatus.SUCCEEDED), False),
        (ended(JobStatus.ABORTED), False),
        (ended(JobStatus.FAILED, JobError(type="deadline_exceeded", message="late")), False),
        (ended(JobStatus.FAILED, JobError(type="upload_failed", message="away")), True),
        (gone, False),
    ],
    ids=["succeeded", "aborted", "late", "upload failed", "gone"],
)
def test_what_ended_elsewhere_is_cleared(stand: Stand, end: Callable[[Stand, str], None], is_kept: bool) -> None:
    end(stand, left_in_the_spool(stand))
    stand.salvager.tick()
    assert len(stand.spool.entries()) == is_kept


def test_what_another_system_left_in_the_folder_is_its_own(stand: Stand) -> None:
    job_id = left_in_the_spool(stand)
    gone(stand, job_id)
    stand.spool.system = "elsewhere"
    stand.salvager.tick()
    assert len(stand.spool.entries()) == 1

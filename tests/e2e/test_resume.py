"""A node leaves in mid-job and the next one goes on at that very step."""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path

import pytest

from tasks import Job
from tasks.artifacts import ArtifactStore, DownloadFailed
from tasks.settings import Settings
from tests.e2e.nodes import Fleet, eventually, fleet
from tests.e2e.test_worker import pixels_of

STEPS = 60


def last_steps_told(running: Fleet, job: Job) -> list[int]:
    """By the progress events of the last attempt, in order."""
    steps: list[int] = []
    for event in running.client.store.events(job.id):
        if event.type == "status" and event.data["status"] == "running":
            steps.clear()
        elif event.type == "progress" and event.data["stage"] == "denoising":
            steps.append(event.data["step"])
    return steps


@pytest.mark.parametrize("num_outputs", [1, 3])
def test_sigterm_in_mid_job_loses_no_step(settings: Settings, tmp_path: Path, num_outputs: int) -> None:
    fields = {"seed": 7, "num_inference_steps": STEPS, "num_outputs": num_outputs}
    with fleet(settings, tmp_path / "n", fake="step_ms=50", mode="step", drain_grace_s=0.0) as running:
        first = running.start_worker("first")
        job = running.submit("mate", **fields)
        running.wait_step(job, 8)
        first.send(signal.SIGTERM)
        eventually(lambda: first.returncode == 0, 30, "the worker leaves")
        left = running.client.get(job.id)
        assert (left.status, left.attempt) == ("queued", 1)
        running.start_worker("second")
        done = running.client.wait(job.id, timeout_s=60)
        clean = running.client.wait(running.submit("mate", **fields).id, timeout_s=60)
        assert (done.status, done.attempt) == ("succeeded", 2)
        assert pixels_of(running, done) == pixels_of(running, clean)
        assert min(last_steps_told(running, job)) >= 8
        kept = ArtifactStore(running.settings)
        with pytest.raises(DownloadFailed):
            kept.get(f"s3://{kept.bucket}/checkpoints/{job.id}.safetensors", 2**20)


def leave_and_go_on(running: Fleet, job: Job, name: str, *, step: int) -> None:
    """A worker takes the job up to some step and is drained."""
    worker = running.start_worker(name)
    running.wait_step(job, step)
    worker.send(signal.SIGTERM)
    eventually(lambda: worker.returncode == 0, 30, "the worker leaves")


def test_finished_rows_and_a_second_hop_need_nobody_to_wake_the_device(settings: Settings, tmp_path: Path) -> None:
    """One place, three rows: the first is done at the drain, so that nothing opens where it would have been."""
    fields = {"seed": 3, "num_inference_steps": 20, "num_outputs": 3}
    with fleet(
        settings, tmp_path / "n", fake="step_ms=40", mode="step", max_batch_rows=1, drain_grace_s=0.0
    ) as running:
        job = running.submit("mate", **fields)
        leave_and_go_on(running, job, "first", step=9)
        second = running.start_worker("second")
        eventually(lambda: running.client.get(job.id).status == "running", 20, "taken again")
        second.send(signal.SIGTERM)  # before or after a step of its own
        eventually(lambda: second.returncode == 0, 30, "the worker leaves")
        running.start_worker("third")
        done = running.client.wait(job.id, timeout_s=60)
        clean = running.client.wait(running.submit("mate", **fields).id, timeout_s=60)
        assert pixels_of(running, done) == pixels_of(running, clean)
        assert min(step for step in last_steps_told(running, job) if step) >= 9


def test_a_damaged_checkpoint_costs_time_only(settings: Settings, tmp_path: Path) -> None:
    with fleet(settings, tmp_path / "n", fake="step_ms=40", mode="step", drain_grace_s=0.0) as running:
        job = running.submit("mate", num_inference_steps=20, seed=5)
        leave_and_go_on(running, job, "first", step=5)
        store = ArtifactStore(running.settings)
        key = f"checkpoints/{job.id}.safetensors"
        body = bytearray(store.get(f"s3://{store.bucket}/{key}", 2**24))
        body[-3] ^= 1
        store.put(key, bytes(body), "application/octet-stream", hashlib.sha256(body).hexdigest())
        running.start_worker("second")
        done = running.client.wait(job.id, timeout_s=60)
        clean = running.client.wait(running.submit("mate", num_inference_steps=20, seed=5).id, timeout_s=60)
        assert pixels_of(running, done) == pixels_of(running, clean)


def test_a_row_that_stands_aside_is_no_hung_device(settings: Settings, tmp_path: Path) -> None:
    with fleet(settings, tmp_path / "n", fake="step_ms=20", mode="step", max_batch_rows=1, stall_s=2.0) as running:
        worker = running.start_worker()
        low = running.submit("low", num_inference_steps=50, priority=0)
        running.wait_step(low, 3)
        high = running.submit("high", num_inference_steps=250, priority=9)
        assert running.client.wait(high.id, timeout_s=60).status == "succeeded"
        done = running.client.wait(low.id, timeout_s=60)
        assert (done.status, done.attempt) == ("succeeded", 1)
        assert worker.returncode is None


def test_a_checkpoint_that_is_gone_costs_time_only(settings: Settings, tmp_path: Path) -> None:
    with fleet(settings, tmp_path / "n", fake="step_ms=50", mode="step", drain_grace_s=0.0) as running:
        first = running.start_worker("first")
        job = running.submit("mate", num_inference_steps=20)
        running.wait_step(job, 5)
        first.send(signal.SIGTERM)
        eventually(lambda: first.returncode == 0, 30, "the worker leaves")
        store = ArtifactStore(running.settings)
        store.delete([f"checkpoints/{job.id}.safetensors"])
        running.start_worker("second")
        assert running.client.wait(job.id, timeout_s=60).status == "succeeded"

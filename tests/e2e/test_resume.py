"""A node leaves in mid-job and the next one goes on at that very step."""

from __future__ import annotations

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
            kept.get(f"s3://{kept.bucket}/checkpoints/{job.id}/1/0.safetensors", 2**20)


def test_a_checkpoint_that_is_gone_costs_time_only(settings: Settings, tmp_path: Path) -> None:
    with fleet(settings, tmp_path / "n", fake="step_ms=50", mode="step", drain_grace_s=0.0) as running:
        first = running.start_worker("first")
        job = running.submit("mate", num_inference_steps=20)
        running.wait_step(job, 5)
        first.send(signal.SIGTERM)
        eventually(lambda: first.returncode == 0, 30, "the worker leaves")
        store = ArtifactStore(running.settings)
        store.delete([f"checkpoints/{job.id}/1/0.safetensors"])
        running.start_worker("second")
        assert running.client.wait(job.id, timeout_s=60).status == "succeeded"

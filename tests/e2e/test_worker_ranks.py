"""One worker over two devices, each a process: jobs run on both, a killed one costs time, a stop leaves nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil

from tasks.settings import Settings
from tests.e2e.nodes import eventually, fleet

ENTRY = 'executor = "process"\ndevices = ["cpu", "cpu"]'


def test_a_worker_over_two_devices(settings: Settings, tmp_path: Path) -> None:
    with fleet(settings, tmp_path / "n", fake="step_ms=20", mode="step", max_batch_rows=2, entry=ENTRY) as running:
        worker = running.start_worker()
        (told,) = running.client.store.workers()
        assert told["models"]["fake"]["device"] == "cpu,cpu"
        assert told["models"]["fake"]["speed"]["max_rows"] == 4
        ranks = psutil.Process(worker.pid).children()
        assert len(ranks) == 2
        jobs = [running.submit(num_inference_steps=100, seed=seed) for seed in range(4)]
        for job in jobs:
            running.wait_step(job, 2)  # all four at a time, two rows each
        ranks[0].send_signal(signal.SIGKILL)
        done = [running.client.wait(job.id, timeout_s=60) for job in jobs]
        assert [(job.status, job.attempt) for job in done] == [("succeeded", 1)] * 4
        eventually(lambda: len(psutil.Process(worker.pid).children()) == 2, 30, "another took its place")
        ranks = psutil.Process(worker.pid).children()
        worker.send(signal.SIGTERM)
        eventually(lambda: worker.returncode is not None, 30, "the worker leaves")
        assert worker.returncode == 0
        assert not any(rank.is_running() for rank in ranks)

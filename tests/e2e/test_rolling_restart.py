"""Every worker is replaced in its turn while all of them work: what an operator does to bring in a new release."""

from __future__ import annotations

import hashlib
import signal
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tasks import Job
from tasks.job import JobStatus
from tasks.settings import Settings
from tests.chaos.verdict import expected_pixels
from tests.e2e.nodes import Fleet, eventually, fleet
from tests.e2e.test_worker import ended, pixels_of

NODES = ("node-1", "node-2", "node-3")
STEPS = 100


class Load:
    """Jobs of many steps, twelve of which are live whenever a worker is asked to leave."""

    def __init__(self, running: Fleet) -> None:
        self._running = running
        self.jobs: list[Job] = []

    def is_under_way_on(self, name: str) -> bool:
        """Looked at again and again."""
        running = self._running.client.store.list(status=JobStatus.RUNNING).jobs
        self._top_up(12 - len(running) - len(self._running.client.store.list(status=JobStatus.QUEUED).jobs))
        return any(job.worker and job.worker.split(":")[0] == name and job.progress.step for job in running)

    def _top_up(self, num_missing: int) -> None:
        for _ in range(num_missing):
            seed = len(self.jobs)
            rows = 1 + (seed % 4 == 3)
            job = self._running.submit(f"boat {seed}", seed=seed, num_outputs=rows, num_inference_steps=STEPS)
            self.jobs.append(job)


def steps_by_row(log: Path) -> dict[tuple[str, int], list[int]]:
    """Of each row of each job, over all its attempts and in all processes, in the order in which they were done."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for line in sorted(log.read_text("ascii").splitlines(), key=lambda line: int(line.split()[0])):
        _, _, request_id, row, step = line.split()
        found[request_id.rpartition(".")[0], int(row)].append(int(step))
    return found


def picture(job: Job, index: int) -> str:
    return hashlib.sha256(expected_pixels(job.request.model_dump(), index)).hexdigest()


@pytest.mark.timeout(240)
def test_workers_are_replaced_one_by_one_and_no_step_is_done_twice(settings: Settings, tmp_path: Path) -> None:
    log = tmp_path / "steps.log"
    fake = f"step_ms=30,step_log={log}"
    with fleet(settings, tmp_path / "n", fake=fake, mode="step", look_ahead_rows=0, drain_grace_s=0.0) as running:
        with ThreadPoolExecutor() as threads:
            workers = list(threads.map(running.start_worker, NODES))
        load = Load(running)
        for name, worker in zip(NODES, workers, strict=True):
            eventually(lambda name=name: load.is_under_way_on(name), 30, f"{name} works")
            worker.send(signal.SIGTERM)
            eventually(lambda worker=worker: worker.returncode is not None, 30, f"{name} leaves")
            assert worker.returncode == 0
            running.start_worker(name)
        done = ended(running, load.jobs)
        assert {(job.status, job.errors) for job in done} == {("succeeded", ())}
        assert max(job.attempt for job in done) > 1, "somebody was given back"
        assert len({job.worker for job in done}) > 1
        for job in done:
            assert pixels_of(running, job) == [picture(job, index) for index in range(job.request.num_outputs)]
        once = list(range(1, STEPS + 1))
        steps = steps_by_row(log)
        assert {(job.id, row): steps[job.id, row] for job in done for row in range(job.request.num_outputs)} == {
            (job.id, row): once for job in done for row in range(job.request.num_outputs)
        }

"""The object store is away while jobs finish, and their worker is killed or stopped: nothing is rendered twice."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks import Job
from tasks.local.process import ChildProcess
from tasks.settings import Settings
from tests.chaos.proxy import Proxies
from tests.e2e.nodes import Fleet, eventually, fleet
from tests.e2e.test_worker import ended, pixels_of

STEPS = 4


@contextlib.contextmanager
def behind_a_proxy(settings: Settings, home: Path, **changes: Any) -> Iterator[tuple[Fleet, Proxies, Path]]:
    """A fleet of two rows a worker, the proxy on its way to the store, and the log of every step of every row."""
    proxies, steps = Proxies(), home / "steps.log"
    steps.touch()
    try:
        port = proxies.add("s3", int((settings.s3_endpoint_url or "").rpartition(":")[2]))
        own = settings.model_copy(update={"s3_endpoint_url": f"http://127.0.0.1:{port}"})
        fake = f"step_ms=5,step_log={steps}"
        with fleet(own, home / "n", fake=fake, max_batch_rows=2, look_ahead_rows=0, **changes) as running:
            yield running, proxies, steps
    finally:
        proxies.stop()


def steps_of(log: Path, jobs: list[Job]) -> dict[str, int]:
    """Steps of each job over all its attempts."""
    done = Counter(line.split()[2].rpartition(".")[0] for line in log.read_text("utf-8").splitlines())
    return {job.id: done[job.id] for job in jobs}


def wait_uploading(running: Fleet, jobs: list[Job]) -> None:
    eventually(
        lambda: all(running.client.get(job.id).progress.stage == "uploading" for job in jobs), 30, "all are rendered"
    )


def spool_of(running: Fleet) -> Path:
    assert running.settings.spool_dir is not None
    return running.settings.spool_dir


def flip_a_bit(running: Fleet, job: Job) -> None:
    [parcel] = spool_of(running).glob(f"{job.id}.*")
    body = bytearray(parcel.read_bytes())
    body[-7] ^= 1
    parcel.write_bytes(body)


def kill(worker: ChildProcess) -> None:
    worker.send(signal.SIGKILL)
    eventually(lambda: worker.returncode is not None, 10, "it is dead")


def test_six_jobs_outlive_an_outage_and_a_kill_and_are_rendered_once(settings: Settings, tmp_path: Path) -> None:
    with behind_a_proxy(settings, tmp_path) as (running, proxies, steps):
        worker = running.start_worker("node")
        proxies.set("s3", "refuse")
        jobs = [running.submit(seed=n, num_outputs=1 + n % 2) for n in range(6)]
        damaged = running.submit(seed=6)
        wait_uploading(running, [*jobs, damaged])  # more than three times as many as there are places
        assert {running.client.get(job.id).status for job in jobs} == {"running"}
        kill(worker)
        flip_a_bit(running, damaged)
        proxies.set("s3", "pass")  # the new process needs its bucket
        running.start_worker("node")
        for job in ended(running, jobs):
            assert (job.status, job.attempt) == ("succeeded", 2)
            assert pixels_of(running, job)
            assert all("/2/" in output.uri for output in job.outputs)
            assert [output.seed for output in job.outputs] == [
                (job.request.seed or 0) + k for k in range(job.request.num_outputs)
            ]
            assert job.metrics.device_seconds
        assert steps_of(steps, jobs) == {job.id: STEPS * job.request.num_outputs for job in jobs}
        assert pixels_of(running, ended(running, [damaged])[0])
        assert steps_of(steps, [damaged]) == {damaged.id: 2 * STEPS}
        eventually(lambda: not list(spool_of(running).iterdir()), 10, "the spool is empty")


def test_a_drain_in_an_outage_gives_jobs_back_and_the_next_process_sends_them(
    settings: Settings, tmp_path: Path
) -> None:
    with behind_a_proxy(settings, tmp_path, drain_grace_s=0.0) as (running, proxies, steps):
        worker = running.start_worker("node")
        proxies.set("s3", "refuse")
        jobs = [running.submit(seed=n) for n in range(4)]
        wait_uploading(running, jobs)
        worker.send(signal.SIGTERM)
        eventually(lambda: worker.returncode == 0, 20, "it leaves")
        assert {running.client.get(job.id).status for job in jobs} == {"queued"}
        proxies.set("s3", "pass")
        running.start_worker("node")
        for job in ended(running, jobs):
            assert (job.status, job.errors) == ("succeeded", ())
        assert set(steps_of(steps, jobs).values()) == {STEPS}

"""Custody at its weakest: a rescuer that dies at its work, a record that is gone, everything killed at once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis

from tasks.artifacts import ArtifactStore
from tasks.errors import UnknownJob
from tasks.local.process import ChildProcess, free_port
from tasks.local.servers import answers_ok, start_redis
from tasks.settings import Settings
from tests.e2e.nodes import Fleet, environment, eventually, fleet
from tests.e2e.test_worker import ended
from tests.forks import ForkedProcess

#: A rescuer that is killed between ending the lost attempts and sending their new messages.
_DYING_RESCUER = """
import os, signal, time
from tasks.connection import connect
from tasks.redis_store import RedisJobStore
from tasks.settings import Settings
from worker.rescue import Rescuer

class Killer:
    def publish(self, hints):
        if hints:
            os.kill(os.getpid(), signal.SIGKILL)

rescuer = Rescuer(RedisJobStore(connect(Settings())), Killer(), 3, lambda: True)
while True:
    rescuer.tick()
    time.sleep(0.1)
"""


@contextlib.contextmanager
def api(running: Fleet, home: Path) -> Iterator[tuple[str, ChildProcess]]:
    """Its URL and its process."""
    port = free_port()
    env = {**os.environ, **environment(running.settings)}
    process = ForkedProcess("api", "api_stub", "--port", str(port), log=home / "api.log", env=env)
    try:
        process.wait_ready(lambda: answers_ok(f"http://127.0.0.1:{port}/healthz"), timeout_s=60)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.stop()


def test_a_rescuer_that_is_killed_at_its_work_holds_no_other_up(settings: Settings, tmp_path: Path) -> None:
    """Report taskiq-redis#131: a lock of the reclaimer outlived it, and nobody reclaimed any more."""
    with fleet(settings, tmp_path / "n", fake="step_ms=20") as running:
        doomed = running.start_worker("doomed")
        jobs = [running.submit(num_inference_steps=250) for _ in range(3)]
        running.wait_step(jobs[0], 2)
        doomed.send(signal.SIGKILL)
        eventually(lambda: doomed.returncode is not None, 10, "it is dead")
        env = {**os.environ, **environment(running.settings)}
        rescuer = subprocess.run([sys.executable, "-c", _DYING_RESCUER], env=env, timeout=60)
        assert rescuer.returncode == -signal.SIGKILL
        left = {running.client.get(job.id).status for job in jobs}
        assert "queued" in left and left <= {"queued", "running"}
        running.start_worker("other")
        for job in ended(running, jobs):
            assert (job.status, job.attempt) == ("succeeded", 2)


def test_a_record_that_is_gone_is_absent_and_its_worker_lets_go(settings: Settings, tmp_path: Path) -> None:
    """Report comfyui-mcp#2507: a lost id reads as done."""
    with (
        fleet(settings, tmp_path / "n", fake="step_ms=20", max_batch_rows=1) as running,
        api(running, tmp_path) as (url, _),
    ):
        assert httpx.get(f"{url}/v1/jobs/never-was", timeout=20).status_code == 404
        worker = running.start_worker()
        lost, next_one = running.submit(num_inference_steps=1000), running.submit(seed=3)
        running.wait_step(lost, 2)
        with redis.Redis.from_url(settings.redis_url) as admin:
            admin.delete(f"safelight:job:{lost.id}")
        done = running.client.wait(next_one.id, timeout_s=60)  # the device was let go long before step 1000
        assert (done.status, done.attempt) == ("succeeded", 1)
        assert httpx.get(f"{url}/v1/jobs/{lost.id}", timeout=20).status_code == 404
        with pytest.raises(UnknownJob):
            running.client.get(lost.id)
        eventually(lambda: running.client.store.queues(["fake"])[0].running == 0, 30, "it is counted no more")
        assert worker.returncode is None
        assert f"job {lost.id} attempt 1: lease lost" in running.logs()


def test_all_killed_at_once_and_every_job_ends_once(settings: Settings, tmp_path: Path) -> None:
    """Reports ComfyUI#2844 and #13512: the queue lives in a process, and dies with it."""
    server = start_redis(tmp_path / "redis")
    own = settings.model_copy(update={"redis_url": server.url})
    try:
        with fleet(own, tmp_path / "n", fake="step_ms=10") as running, api(running, tmp_path) as (url, front):
            worker = running.start_worker()
            bodies = [{"prompt": "a boat", "seed": n, "num_inference_steps": 20} for n in range(50)]
            reply = httpx.post(f"{url}/v1/jobs/batch", json={"jobs": bodies}, timeout=30)
            assert reply.status_code == 202, reply.text
            ids = [job["id"] for job in reply.json()["jobs"]]
            eventually(lambda: any(running.client.get(each).status == "succeeded" for each in ids), 30, "it works")
            for process in (front, worker, server.process):
                process.send(signal.SIGKILL)
            server.process.stop()
            server = start_redis(tmp_path / "redis", port=server.port)
            running.start_worker()
            artifacts = ArtifactStore(own)
            for each in ids:
                job = running.client.wait(each, timeout_s=90)
                assert job.status == "succeeded"
                assert job.attempt <= 2
                [output] = job.outputs
                assert hashlib.sha256(artifacts.get(output.uri, 2**20)).hexdigest() == output.sha256
                kinds = Counter(event.type for event in running.client.store.events(each))
                assert kinds["done"] == 1
            assert len(running.client.store.list(limit=100).jobs) == 50
    finally:
        server.process.stop()

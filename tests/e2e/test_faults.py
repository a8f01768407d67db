"""Faults that really happen to a worker: killed, frozen, poisoned, drained, cut off from Redis or the object store."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from kombu import Connection

from tasks.broker_url import broker_url
from tasks.job import Job
from tasks.local.process import ChildProcess
from tasks.local.servers import start_redis, start_s3
from tasks.settings import Settings
from tests.chaos.evidence import read_stored
from tests.chaos.proxy import Proxies
from tests.e2e.nodes import LEASE_S, Fleet, eventually, fleet
from tests.e2e.test_worker import ended, pixels_of


@contextlib.contextmanager
def two_workers(settings: Settings, home: Path) -> Iterator[tuple[Fleet, dict[str, ChildProcess]]]:
    """Both have seen a lease of their own beats: earlier than that neither judges the other."""
    with fleet(settings, home, fake="step_ms=20") as running, ThreadPoolExecutor() as threads:
        names = ("one", "two")
        workers = dict(zip(names, threads.map(running.start_worker, names), strict=True))
        time.sleep(LEASE_S + 1)
        yield running, workers


def worker_of(running: Fleet, job: Job) -> str:
    return (running.client.get(job.id).worker or "").partition(":")[0]


def test_kill_9_starts_the_job_again_elsewhere_in_time(settings: Settings, tmp_path: Path) -> None:
    with two_workers(settings, tmp_path / "n") as (running, workers):
        job = running.submit(num_inference_steps=200)
        running.wait_step(job, 2)
        workers[worker_of(running, job)].send(signal.SIGKILL)
        eventually(lambda: running.client.get(job.id).attempt == 2, LEASE_S + 5, "a second attempt")
        done = running.client.wait(job.id, timeout_s=60)
        assert (done.status, done.attempt) == ("succeeded", 2)
        assert "/2/" in done.outputs[0].uri
        assert [error.type for error in done.errors] == ["worker_lost"]


def test_a_frozen_worker_is_fenced_off_when_it_thaws(settings: Settings, tmp_path: Path) -> None:
    with two_workers(settings, tmp_path / "n") as (running, workers):
        job = running.submit(num_inference_steps=150, seed=5)
        running.wait_step(job, 2)
        frozen = worker_of(running, job)
        workers[frozen].send(signal.SIGSTOP)
        eventually(lambda: running.client.get(job.id).attempt == 2, 2 * LEASE_S + 8, "a second attempt")
        workers[frozen].send(signal.SIGCONT)
        done = running.client.wait(job.id, timeout_s=60)
        assert (done.status, done.attempt) == ("succeeded", 2)
        assert worker_of(running, job) != frozen
        time.sleep(2)
        after = running.client.get(job.id)
        assert after == done
        assert pixels_of(running, after)
        kinds = [event.type for event in running.client.store.events(job.id)]
        assert kinds.count("done") == 1


def deliver_again(url: str) -> None:
    """What a consumer with a visibility timeout of a second does to every message that is older, whosever it is."""
    options = {"visibility_timeout": 1}
    with Connection(broker_url(url), transport_options=options) as connection, connection.channel() as channel:
        channel.qos.restore_visible(interval=1)


def test_a_long_job_with_a_live_lease_runs_once(settings: Settings, tmp_path: Path) -> None:
    """Reports celery#5935 and modelq#19: a job that outlasts the visibility timeout, or an age, is run twice."""
    steps, num_steps = tmp_path / "steps.log", 50 * LEASE_S  # two and a half leases long
    with (
        fleet(settings, tmp_path / "n", fake=f"step_ms=50,step_log={steps}") as running,
        redis.Redis.from_url(settings.redis_url) as broker,
    ):
        running.start_worker()
        running.start_worker()
        job = running.submit(num_inference_steps=num_steps)
        running.wait_step(job, 40)
        assert broker.hlen("unacked") == 1
        deliver_again(settings.redis_url)
        eventually(lambda: broker.hlen("unacked") == 0, 5, "its message came to the other worker, and nothing of it")
        done = running.client.wait(job.id, timeout_s=60)
        assert (done.status, done.attempt, done.errors) == ("succeeded", 1, ())
        assert steps.read_text("ascii").count(f" {job.id}.") == num_steps
        assert len(read_stored(running.settings).objects) == 1


@pytest.mark.timeout(240)
@pytest.mark.parametrize("harm", ["kill_prompt", "lost_prompt"])
def test_poison_ends_alone_and_innocents_succeed(settings: Settings, tmp_path: Path, harm: str) -> None:
    """A job that kills its process or its device: restarts, quarantine, dead letter; nobody else is blamed."""
    with fleet(settings, tmp_path / "n", fake=f"step_ms=10,{harm}=poison,fail_step=3") as running:
        worker = running.start_worker()
        poison = running.submit("poison", num_inference_steps=20)
        good = [running.submit(f"good {n}", num_inference_steps=20) for n in range(6)]
        restarts, deadline = 0, time.monotonic() + 200
        while not running.client.get(poison.id).status.is_terminal:
            assert time.monotonic() < deadline
            if worker.returncode is not None:
                assert worker.returncode == (1 if harm == "lost_prompt" else -signal.SIGKILL)
                restarts += 1
                worker = running.start_worker()
            time.sleep(0.05)
        if worker.returncode is not None:
            running.start_worker()
        bad = running.client.get(poison.id)
        assert bad.status == "failed"
        assert bad.error is not None
        assert bad.error.type == "worker_lost"
        assert restarts <= 5
        assert {job.status for job in ended(running, good)} == {"succeeded"}
        assert poison.id in running.client.store.dead_letters()


def test_sigterm_finishes_what_runs_and_gives_the_rest_back(settings: Settings, tmp_path: Path) -> None:
    with fleet(settings, tmp_path / "n", fake="step_ms=40", max_batch_rows=1) as running:
        worker = running.start_worker()
        jobs = [running.submit(num_inference_steps=100) for _ in range(4)]
        eventually(
            lambda: any(5 <= running.client.get(job.id).progress.step < 80 for job in jobs), 20, "one of them runs"
        )
        worker.send(signal.SIGTERM)
        eventually(lambda: worker.returncode is not None, 15, "the worker leaves")
        assert worker.returncode == 0
        seen = [running.client.get(job.id) for job in jobs]
        assert sorted(job.status for job in seen) == ["queued", "queued", "queued", "succeeded"]
        assert {job.errors for job in seen} == {()}
        running.start_worker()
        assert {job.status for job in ended(running, jobs)} == {"succeeded"}


def test_a_second_signal_gives_back_at_once(settings: Settings, tmp_path: Path) -> None:
    """The first is that of a terminal that was closed."""
    with fleet(settings, tmp_path / "n", fake="step_ms=50", drain_grace_s=60.0) as running:
        worker = running.start_worker()
        job = running.submit(num_inference_steps=1000)
        running.wait_step(job, 2)
        worker.send(signal.SIGHUP)
        time.sleep(1)
        assert worker.returncode is None
        worker.send(signal.SIGTERM)
        eventually(lambda: worker.returncode is not None, 10, "the worker leaves")
        back = running.client.get(job.id)
        assert (back.status, back.errors) == ("queued", ())


def test_cut_connections_then_a_restarted_redis_lose_nothing(settings: Settings, tmp_path: Path) -> None:
    """Reports celery#8030 and #10205: a worker that reconnects but never consumes again."""
    server = start_redis(tmp_path / "redis")
    try:
        own = settings.model_copy(update={"redis_url": server.url})
        with fleet(own, tmp_path / "n", fake="step_ms=20") as running:
            running.start_worker()
            for _ in range(3):
                with redis.Redis(port=server.port) as admin:
                    admin.client_kill_filter(_type="normal", skipme=True)
                    admin.client_kill_filter(_type="pubsub", skipme=True)
                time.sleep(0.6)
            before = [running.submit(num_inference_steps=60) for _ in range(3)]
            running.wait_step(before[0], 2, timeout_s=10)
            server.process.send(signal.SIGKILL)
            server.process.stop()
            server = start_redis(tmp_path / "redis", port=server.port)
            after = running.submit()
            eventually(lambda: running.client.get(after.id).attempt == 1, 10, "the worker takes a job again")
            for job in ended(running, [*before, after], timeout_s=40):
                assert (job.status, job.attempt) == ("succeeded", 1)
    finally:
        server.process.stop()


def test_a_batch_that_is_not_full_is_not_held_by_a_broker_that_went_away(settings: Settings, tmp_path: Path) -> None:
    """Report celery-batches#107: the timer of a batch died with the connection, and its job was held for ever."""
    admission_wait_s, proxies = 5.0, Proxies()
    try:
        port = proxies.add("redis", int(settings.redis_url.rpartition(":")[2].partition("/")[0]))
        own = settings.model_copy(update={"redis_url": f"redis://127.0.0.1:{port}/0"})
        with fleet(own, tmp_path / "n", mode="request", admission_wait_ms=admission_wait_s * 1000) as running:
            running.start_worker()
            for delay_s in (0.0, 0.02, 0.05, 0.1):  # before, while and after it is taken and waits for company
                job = running.submit()
                time.sleep(delay_s)
                proxies.set("redis", "refuse")
                time.sleep(0.3)
                proxies.set("redis", "pass")
                (done,) = ended(running, [job], timeout_s=2 * admission_wait_s)
                assert (done.status, done.attempt) == ("succeeded", 1)
    finally:
        proxies.stop()


def test_an_object_store_outage_delays_but_does_not_render_again(settings: Settings, tmp_path: Path) -> None:
    server = start_s3(tmp_path / "s3")
    try:
        own = settings.model_copy(update={"s3_endpoint_url": server.url})
        with fleet(own, tmp_path / "n") as running:
            running.start_worker()
            assert ended(running, [running.submit()])[0].status == "succeeded"
            server.process.stop()
            jobs = [running.submit(seed=n) for n in range(4)]
            eventually(
                lambda: all(running.client.get(j.id).progress.stage == "uploading" for j in jobs), 20, "all uploading"
            )
            time.sleep(LEASE_S + 2)
            assert {running.client.get(job.id).status for job in jobs} == {"running"}
            server = start_s3(tmp_path / "s3", port=server.port)
            for job in ended(running, jobs):
                assert (job.status, job.attempt) == ("succeeded", 1)
                assert pixels_of(running, job)
    finally:
        server.process.stop()


def test_a_hung_device_takes_its_worker_out_and_waiting_jobs_go_elsewhere(settings: Settings, tmp_path: Path) -> None:
    with fleet(settings, tmp_path / "n", fake="hang_prompt=boat", max_batch_rows=1, stall_s=2.0) as running:
        worker = running.start_worker()
        jobs = [running.submit() for _ in range(2)]
        eventually(lambda: worker.returncode is not None, 40, "the worker leaves")
        assert worker.returncode == 1
        assert "no sign of life" in running.logs()
        seen = [running.client.get(job.id) for job in jobs]
        assert {job.errors for job in seen} == {()}
        assert "queued" in {job.status for job in seen}  # the one that never ran went back at once

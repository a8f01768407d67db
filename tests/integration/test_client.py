"""The producer's face over a real Redis: what it accepts, tells and survives."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import kombu
import pytest
import redis

from tasks import AsyncClient, Client, GenerationRequest, Job
from tasks.app import GENERATE, SUBMIT, make_app, queue_for
from tasks.broker_queues import queue_lists
from tasks.broker_url import broker_url
from tasks.errors import IdempotencyConflict, InvalidRequest, QueueFull, UnknownJob, WaitTimeout
from tasks.hints import Hinter
from tasks.job import JobStatus, Output
from tasks.settings import Settings
from tasks.store import Claimed, Event, Hint, Outcome
from tasks.submit_task import register_submit, submit_message

OUTPUT = Output(uri="s3://bucket/k/1/0.png", content_type="image/png", seed=1, size_bytes=3, sha256="0" * 64)


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    with Client(Settings(redis_url=redis_url, max_queued=20)) as client:
        yield client


@pytest.fixture
def server(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as server:
        yield server


def run(client: Client, job_id: str, outcome: Outcome | None = None) -> None:
    """What a worker does, without the picture."""
    claimed = client.store.claim(job_id, "w", 30)
    assert isinstance(claimed, Claimed)
    client.store.finish(job_id, claimed.attempt, outcome or Outcome(JobStatus.SUCCEEDED, outputs=(OUTPUT,)))


def messages(server: redis.Redis, model: str = "tiny") -> list[int]:
    """Lengths of the lists of a model's messages, first priority first."""
    return [server.llen(name) for name in queue_lists(model)]


def test_submit_takes_keywords_a_mapping_or_a_request(client: Client, server: redis.Redis) -> None:
    jobs = [client.submit(prompt="x"), client.submit({"prompt": "x"}), client.submit(GenerationRequest(prompt="x"))]
    assert all(isinstance(job, Job) and job.status is JobStatus.QUEUED for job in jobs)
    assert [client.get(job.id).progress.queue_position for job in jobs] == [0, 1, 2]
    assert sum(messages(server)) == 3


def test_a_message_carries_the_id_alone_and_goes_by_priority(
    client: Client, server: redis.Redis, redis_url: str
) -> None:
    for priority in (9, 8, 5, 2, 0):
        client.submit(prompt="secret words", job_id=f"p{priority}", priority=priority)
    assert messages(server) == [1, 2, 1, 1] or messages(server) == [2, 1, 1, 1]
    received = []
    with make_app(Settings(redis_url=redis_url)).connection_for_read() as connection:
        queue = connection.SimpleQueue(queue_for("tiny"))
        for _ in range(5):
            message = queue.get(timeout=3)
            assert "secret" not in str(message.payload)
            assert (message.headers["task"], message.payload[0]) == (GENERATE, [message.headers["id"]])
            received.append(message.headers["id"])
            message.ack()
    assert received == ["p9", "p8", "p5", "p2", "p0"]


def test_bad_requests_and_ids_are_refused_before_anything_is_written(client: Client, server: redis.Redis) -> None:
    with pytest.raises(InvalidRequest, match="height"):
        client.submit(prompt="x", height=97)
    with pytest.raises(InvalidRequest, match="job_id"):
        client.submit(prompt="x", job_id="a b")
    with pytest.raises(TypeError, match="redis_url="):
        Client("redis://127.0.0.1:6379/0")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not both"):
        client.submit({"prompt": "x"}, seed=3)
    with pytest.raises(InvalidRequest, match="width"):
        client.submit_many([{"prompt": "x"}, {"prompt": "x", "width": 1}])
    assert server.dbsize() == 0


def test_idempotency(client: Client, server: redis.Redis) -> None:
    first = client.submit(prompt="x", idempotency_key="k")
    run(client, first.id)
    again = client.create({"prompt": "x"}, idempotency_key="k")
    assert (again.job.id, again.is_new, again.job.status) == (first.id, False, JobStatus.SUCCEEDED)
    with pytest.raises(IdempotencyConflict):
        client.submit(prompt="y", idempotency_key="k")
    assert sum(messages(server)) == 1


def test_twenty_producers_of_one_key_make_one_job(redis_url: str) -> None:
    ids: list[str] = []

    def produce(client: Client) -> None:
        ids.append(client.submit(prompt="x", idempotency_key="k").id)

    with Client(redis_url=redis_url) as client:
        threads = [threading.Thread(target=produce, args=[client]) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(ids) == 20
    assert len(set(ids)) == 1


def test_submit_many_is_all_or_none(client: Client, server: redis.Redis) -> None:
    jobs = client.submit_many([{"prompt": str(number)} for number in range(15)])
    assert [job.request.prompt for job in jobs] == [str(number) for number in range(15)]
    assert sum(messages(server)) == 15
    with pytest.raises(QueueFull):
        client.submit_many([{"prompt": "x", "group": "late"}] * 10)
    assert {job.status for job in client.store.list(group="late").jobs} == {JobStatus.ABORTED}
    [stats] = client.store.queues(["tiny"])
    assert stats.queued == 15


def test_wait_wakes_at_the_end(client: Client) -> None:
    job_id = client.submit(prompt="x").id
    threading.Timer(0.3, run, [client, job_id]).start()
    start = time.monotonic()
    assert client.wait(job_id, timeout_s=30).status is JobStatus.SUCCEEDED
    assert time.monotonic() - start < 10
    assert client.wait(job_id, timeout_s=0).outputs == (OUTPUT,)


def test_wait_gives_up_and_the_job_goes_on(client: Client) -> None:
    job_id = client.submit(prompt="x").id
    with pytest.raises(WaitTimeout, match="still queued"):
        client.wait(job_id, timeout_s=0.2)
    assert client.get(job_id).status is JobStatus.QUEUED
    with pytest.raises(UnknownJob):
        client.wait("nobody", timeout_s=1)


@pytest.mark.parametrize("call", ["get", "wait", "abort", "explain", "result_urls", "replay"])
def test_a_job_in_place_of_its_id_is_told_so(client: Client, call: str) -> None:
    job = client.submit(prompt="x")
    rest = {"timeout_s": 1} if call == "wait" else {}
    with pytest.raises(ValueError, match=r"job_id: wants a text, got a Job"):
        getattr(client, call)(job, **rest)


def test_events_end_after_done_and_can_be_resumed(client: Client, server: redis.Redis) -> None:
    job_id = client.submit(prompt="x").id
    threading.Timer(0.2, run, [client, job_id]).start()
    events = list(client.events(job_id))
    assert [event.type for event in events] == ["status", "status", "status", "done"]
    assert list(client.events(job_id, after=events[1].id)) == events[2:]
    assert list(client.events(job_id, after=events[-1].id)) == []
    server.delete(f"safelight:events:{job_id}")  # as their own TTL does, long before the record's
    assert list(client.events(job_id, after=events[1].id)) == events[-1:]
    assert list(client.events(job_id, after=events[-1].id)) == []
    with pytest.raises(UnknownJob):
        list(client.events("nobody"))


def test_events_of_a_job_that_has_ended_wait_for_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = client.submit(prompt="x").id
    client.abort(job_id)
    last, read, waits = list(client.events(job_id))[-1], client.store.events, []

    def noted(job_id: str, *, after: str = "0", block_s: float = 0.0) -> Sequence[Event]:
        waits.append(block_s)
        return read(job_id, after=after)

    monkeypatch.setattr(client.store, "events", noted)
    assert list(client.events(job_id, after=last.id)) == []
    assert waits and not any(waits)


def test_abort_and_groups(client: Client) -> None:
    job_ids = [client.submit(prompt="x", group="g").id for _ in range(3)]
    assert client.abort(job_ids[0]).status is JobStatus.ABORTED
    assert sorted(client.abort_group("g")) == sorted(job_ids[1:])
    with pytest.raises(UnknownJob):
        client.abort("nobody")


def test_replay_is_the_same_request_under_a_new_id(client: Client) -> None:
    job = client.submit(prompt="x", metadata={"a": 1})
    again = client.replay(job.id)
    assert again.id != job.id
    assert again.request == job.request


def test_a_broker_that_refuses_costs_time_and_no_job(client: Client, server: redis.Redis, redis_url: str) -> None:
    for name in queue_lists("tiny"):
        server.set(name, "not a list, so that LPUSH fails")
    job = client.submit(prompt="x")
    assert client.get(job.id).status is JobStatus.QUEUED
    server.delete(*queue_lists("tiny"))
    server.zadd("safelight:hints", {job.id: 1})
    server.hset(f"safelight:job:{job.id}", "hinted", 1)
    hints = client.store.stale_hints()
    assert hints == [Hint(job.id, "tiny", 5)]
    assert Hinter(Settings(redis_url=redis_url)).publish(hints)
    assert sum(messages(server)) == 1


def test_no_message_is_doubled_while_the_broker_still_has_them(client: Client, server: redis.Redis) -> None:
    jobs = client.submit_many([{"prompt": "x"}] * 10)
    for job in jobs:
        server.zadd("safelight:hints", {job.id: 1})
        server.hset(f"safelight:job:{job.id}", "hinted", 1)
    assert client.store.stale_hints() == []
    server.rpop(queue_lists("tiny")[1], 3)
    for job in jobs:
        server.zadd("safelight:hints", {job.id: 1})
    assert len(client.store.stale_hints()) == 3


def test_the_async_client_does_the_same(redis_url: str) -> None:
    async def life() -> None:
        async with AsyncClient(Settings(redis_url=redis_url)) as client:
            created = await client.create({"prompt": "x"}, idempotency_key="k")
            assert created.is_new
            assert (await client.submit(prompt="x", idempotency_key="k")).id == created.job.id
            many = await client.submit_many([{"prompt": "x", "group": "g"}] * 3)
            assert len(await client.abort_group("g")) == 3
            assert (await client.get(many[0].id)).status is JobStatus.ABORTED
            job_id = created.job.id
            with Client(Settings(redis_url=redis_url)) as worker:
                timer = threading.Timer(0.2, run, [worker, job_id])
                timer.start()
                assert (await client.wait(job_id, timeout_s=20)).status is JobStatus.SUCCEEDED
                timer.join()
            types = [event.type async for event in client.events(job_id)]
            assert types == ["status", "status", "status", "done"]
            assert (await client.replay(job_id)).request == created.job.request
            [stats] = await client.store.queues(["tiny"])
            assert (stats.queued, await client.store.workers()) == (1, [])
            assert len((await client.store.list(status=JobStatus.ABORTED)).jobs) == 3
            with pytest.raises(WaitTimeout):
                await client.wait((await client.submit(prompt="y")).id, timeout_s=0.1)
            with pytest.raises(UnknownJob):
                await client.abort("nobody")

    asyncio.run(life())


def test_more_callers_wait_at_once_than_a_pool_of_connections_holds_by_itself(redis_url: str) -> None:
    async def life() -> None:
        async with AsyncClient(Settings(redis_url=redis_url)) as client:
            job = await client.submit(prompt="x")
            waits = [asyncio.create_task(client.wait(job.id, timeout_s=60)) for _ in range(150)]
            while len(client._redis.connection_pool._in_use_connections) < 150:
                assert not any(wait.done() for wait in waits), [wait.result() for wait in waits if wait.done()]
                await asyncio.sleep(0.01)
            await client.abort(job.id)
            assert {ended.status for ended in await asyncio.gather(*waits)} == {JobStatus.ABORTED}

    asyncio.run(life())


class TestSubmitTask:
    def submit(self, client: Client, task_id: str, **fields: Any) -> Job | None:
        return submit_message(task_id, fields, client.store, client.models, client._hinter)

    def test_the_task_id_is_the_jobs(self, client: Client, server: redis.Redis) -> None:
        job = self.submit(client, "task-1", prompt="x")
        assert job is not None
        again = self.submit(client, "task-1", prompt="x")
        assert again == client.get("task-1") == job
        assert client.store.queues(["tiny"])[0].queued == 1

    def test_a_bad_request_becomes_a_failed_job(self, client: Client, server: redis.Redis) -> None:
        job = self.submit(client, "task-1", prompt="a boat", height=7, group="g")
        assert job is not None and job.error is not None
        assert (job.status, job.error.type, job.request.prompt) == (JobStatus.FAILED, "invalid_request", "a boat")
        assert "height" in job.error.message
        assert client.get("task-1") == job
        worse = self.submit(client, "task-2", prompt=None, group="", metadata=3)
        assert worse is not None
        assert worse.status is JobStatus.FAILED
        assert sum(messages(server)) == 0

    def test_an_id_that_no_job_can_have_is_dropped(self, client: Client) -> None:
        assert self.submit(client, "a b", prompt="x") is None
        assert self.submit(client, "a", prompt="x") is not None
        assert self.submit(client, "a", prompt="another body under the same id") is None

    def test_any_celery_producer_can_send_it(self, client: Client, redis_url: str) -> None:
        app = make_app(Settings(redis_url=redis_url))
        register_submit(app, client.store, client.models, client._hinter)
        sent = app.send_task(SUBMIT, kwargs={"prompt": "x", "priority": 9})
        with app.connection_for_read() as connection:
            message = connection.SimpleQueue(SUBMIT).get(timeout=3)
            args, kwargs, _ = message.payload
        result = app.tasks[SUBMIT].apply(args, kwargs, task_id=message.headers["id"])
        # A worker that another test ran in this process has told Celery that waiting blocks.
        assert result.get(disable_sync_subtasks=False) == sent.id
        assert client.get(sent.id).request.priority == 9


def test_the_app_is_configured_to_survive() -> None:
    conf = make_app(Settings(redis_url="redis://h/1")).conf
    assert (conf.task_acks_late, conf.worker_prefetch_multiplier, conf.task_ignore_result) == (True, 1, True)
    assert (conf.accept_content, conf.task_serializer, conf.result_backend) == (["json"], "json", None)
    options = conf.broker_transport_options
    assert (options["priority_steps"], options["retry_on_timeout"]) == ([0, 3, 6, 9], True)
    assert options["socket_timeout"] > 1
    assert make_app(Settings()).amqp.router.route({}, SUBMIT)["queue"].name == SUBMIT


@pytest.mark.parametrize(
    ("url", "password"),
    [
        ("redis://:p%40%3A%2F%23@h:1/2", "p@:/#"),
        ("redis://:p@:/#[%]é@h:1/2", "p@:/#[%]é"),
        ("redis://u:plain@h:1/2", "plain"),
    ],
)
def test_passwords_of_any_characters_reach_both_clients(url: str, password: str) -> None:
    broker = kombu.Connection(broker_url(url))
    assert (broker.password, broker.hostname, broker.port, broker.virtual_host) == (password, "h", 1, "2")
    with Client(redis_url=url) as client:
        options = client._redis.connection_pool.connection_kwargs
    assert (options["password"], options["host"], options["port"], options["db"]) == (password, "h", 1, 2)


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys, tasks; assert 'pydantic' not in sys.modules, 'import tasks';"
        "from tasks import Client, AsyncClient, GenerationRequest, Job;"
        "heavy = {'boto3', 'celery', 'kombu', 'torch', 'numpy', 'httpx'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

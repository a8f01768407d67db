"""What the Redis store says and keeps when Redis forgets, refuses, fills up or is away; and what a job costs it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tasks import AsyncClient, Client
from tasks.connection import connect
from tasks.errors import StoreFull, StoreUnavailable, UnknownJob
from tasks.job import JobError, JobMetrics, JobStatus, Output, Progress
from tasks.local.process import free_port
from tasks.local.servers import RedisServer, start_redis
from tasks.redis_store import RedisJobStore
from tasks.settings import Settings
from tasks.store import Claimed, Lease, NotClaimed, Outcome, Written
from tasks.webhook_queue import WebhookQueue
from tests.unit.test_redis_rights import documented

MAX_FINISHED_BYTES = 3 * 1024


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that this test may break."""
    server = start_redis(tmp_path / "redis")
    yield server
    server.process.stop()


def finish(client: Client, job_id: str) -> None:
    """A life as a worker writes it: 20 steps, two outputs, all the metrics."""
    claimed = client.store.claim(job_id, "node-17.example.org:4242:5f1c", 30)
    assert isinstance(claimed, Claimed)
    for step in range(1, 21):
        progress = Progress(stage="denoising", step=step, num_steps=20, fraction=step / 25)
        client.store.report({(job_id, claimed.attempt): progress})
    client.store.finish(job_id, claimed.attempt, whole_outcome(job_id))


def whole_outcome(job_id: str) -> Outcome:
    outputs = [
        Output(
            uri=f"s3://safelight/{job_id}/1/{index}.png",
            content_type="image/png",
            width=1024,
            height=1024,
            seed=281474976710655 + index,
            size_bytes=1_234_567,
            sha256="0123456789abcdef" * 4,
        )
        for index in range(2)
    ]
    names = list(JobMetrics.model_fields)
    metrics = JobMetrics.model_validate({name: 1234.567 + index for index, name in enumerate(names)})
    return Outcome(JobStatus.SUCCEEDED, outputs=outputs, warnings=("prompt truncated at token 77",), metrics=metrics)


def test_a_finished_job_is_small_and_everything_has_an_end(redis_url: str) -> None:
    num_jobs = 200
    with Client(redis_url=redis_url) as client, redis.Redis.from_url(redis_url, decode_responses=True) as server:
        prompt = "a lighthouse on a cliff at dawn, oil on canvas, thick brush strokes, warm light " * 2
        jobs = client.submit_many([{"prompt": prompt, "group": "g", "metadata": {"user": "u-1"}}] * num_jobs)
        for job in jobs:
            finish(client, job.id)
        keys = list(server.scan_iter("safelight:*", count=1000))
        timeless = {key for key in keys if server.pttl(key) == -1}
        indexes = {"jobs", "status:succeeded", "group:g", "expiry", "seq", "stamp"}
        assert timeless == {f"safelight:{name}" for name in indexes}
        kept = [key for key in keys if not key.startswith("safelight:events:")]
        per_job = sum(server.memory_usage(key, samples=0) or 0 for key in kept) / num_jobs
        assert per_job <= MAX_FINISHED_BYTES, per_job
        assert all(0 < server.pttl(f"safelight:events:{job.id}") <= 300_000 for job in jobs)


def test_indexes_are_trimmed_a_bounded_piece_at_a_time(redis_url: str) -> None:
    client = connect(Settings(redis_url=redis_url))
    with Client(redis_url=redis_url) as producer:
        store = RedisJobStore(client, result_ttl_s=3600)
        producer.submit_many([{"prompt": "x", "group": "g"}] * 25)
        store.abort_group("g")
        kept = producer.submit(prompt="stays").id
        for entry in client.zrange("safelight:expiry", 0, -1):
            client.zadd("safelight:expiry", {entry: 1})
            client.delete(f"safelight:job:{entry.split(' ')[0]}")  # gone by its TTL
        for expected in (15, 5, 0):
            store.reap(3, limit=10)
            assert client.zcard("safelight:expiry") == expected
        assert [job.id for job in store.list().jobs] == [kept]
        left = {"jobs", "status:queued", "queue:tiny", "hints", "seq", "work", f"job:{kept}"}
        left |= {"line:tiny:default", "turns:tiny", "rows:queued:tenant", "stamp"}
        timeless = {key for key in client.scan_iter("safelight:*") if client.pttl(key) == -1}
        assert timeless == {f"safelight:{name}" for name in left}


def test_records_that_are_gone_leave_no_ghosts(redis_url: str) -> None:
    """Deleted by hand or evicted while live: absent for every reader, and in no count, position or bound."""
    client = connect(Settings(redis_url=redis_url))
    now_ms = [1_000_000]
    store = RedisJobStore(client, max_queued=2, clock=lambda: now_ms[0])
    with Client(redis_url=redis_url) as producer:
        running, queued = (producer.submit(prompt="x").id for _ in range(2))
        assert isinstance(store.claim(running, "w", 3), Claimed)
        store.abort(running)
        client.delete(f"safelight:job:{running}", f"safelight:job:{queued}")
        assert store.renew({running: 1}, 3) == {running: Lease.LOST}
        assert store.finish(running, 1, whole_outcome(running)) is Written.FENCED
        assert store.claim(queued, "w", 3) == NotClaimed("unknown")
        now_ms[0] += 2_000_000_000_000  # beyond the server's own time of creation
        assert store.reap(3) == store.stale_hints() == []
        assert [(stats.queued, stats.running) for stats in store.queues(["tiny"])] == [(0, 0)]
        for job_id in (running, queued):
            with pytest.raises(UnknownJob):
                store.get(job_id)
        # What they may have left in the bucket is still looked for.
        assert set(client.zrange("safelight:litter", 0, -1)) == {running, queued}
        store.swept((running, queued))
        left = ("seq", "stamp", "pace", "counters")
        assert set(client.scan_iter("safelight:*")) == {f"safelight:{name}" for name in left}


def test_a_forgotten_script_is_loaded_again(redis_url: str) -> None:
    with Client(redis_url=redis_url) as client, redis.Redis.from_url(redis_url) as server:
        client.submit(prompt="x")
        server.script_flush()
        assert client.get(client.submit(prompt="x").id).status is JobStatus.QUEUED


def test_two_prefixes_share_nothing(redis_url: str) -> None:
    with (
        Client(Settings(redis_url=redis_url, key_prefix="{a}:")) as first,
        Client(Settings(redis_url=redis_url, key_prefix="{b}:")) as second,
        redis.Redis.from_url(redis_url, decode_responses=True) as server,
    ):
        first.submit(prompt="x", job_id="j")
        second.submit(prompt="y", job_id="j")
        assert (first.get("j").request.prompt, second.get("j").request.prompt) == ("x", "y")
        assert {key[:4] for key in server.scan_iter() if not key.startswith("safelight.")} == {"{a}:", "{b}:"}


@pytest.mark.parametrize("who_asks_again", ["redis-py", "worker"])
def test_a_claim_whose_answer_was_lost_is_answered_alike(redis_url: str, who_asks_again: str) -> None:
    store = RedisJobStore(connect(Settings(redis_url=redis_url)))
    with Client(redis_url=redis_url) as producer:
        job_id = producer.submit(prompt="x").id
    run = store._script

    def losing(keys: list[str], args: list[str]) -> object:
        answer = run(keys, args)
        store._script = run
        if who_asks_again == "worker":
            raise redis.TimeoutError("Timeout reading from socket")
        return run(keys, args) or answer

    store._script = losing  # type: ignore[assignment]
    if who_asks_again == "worker":
        with pytest.raises(StoreUnavailable):
            store.claim(job_id, "w", 30)
    claimed = store.claim(job_id, "w", 30)
    assert isinstance(claimed, Claimed)
    assert claimed.attempt == 1
    assert store.claim(job_id, "w", 30) == NotClaimed("leased")  # as for any second message
    assert store.finish(job_id, 1, whole_outcome(job_id)) is Written.OK
    assert [event.data["status"] for event in store.events(job_id)] == ["queued", "running", "succeeded", "succeeded"]


def test_an_absent_redis_is_named_without_its_password() -> None:
    url = f"redis://:hunter2@127.0.0.1:{free_port()}/0"
    with Client(redis_url=url) as client, pytest.raises(StoreUnavailable) as caught:
        client.submit(prompt="x")
    message = str(caught.value)
    assert "127.0.0.1:" in message and "SAFELIGHT_REDIS_URL" in message
    assert "hunter2" not in message and "\n" not in message

    async def get() -> None:
        async with AsyncClient(redis_url=url) as client:
            await client.get("x")

    with pytest.raises(StoreUnavailable, match="cannot reach Redis at 127"):
        asyncio.run(get())


def test_a_password_of_any_characters_works_and_a_wrong_one_is_said(own_server: RedisServer) -> None:
    password = "p@:/#[%]é"
    with redis.Redis(port=own_server.port) as server:
        server.config_set("requirepass", password)
    with Client(redis_url=f"redis://:{password}@127.0.0.1:{own_server.port}/0") as client:
        job = client.submit(prompt="x")
        with redis.Redis(port=own_server.port, password=password) as server:
            assert server.llen("safelight.tiny\x06\x163") == 1
        assert client.get(job.id).status is JobStatus.QUEUED
    for login in ("", ":wrong@"):
        with Client(redis_url=f"redis://{login}127.0.0.1:{own_server.port}/0") as client:
            with pytest.raises(StoreUnavailable, match="refused the login"):
                client.get(job.id)


def test_a_full_redis_refuses_new_jobs_and_lets_reads_through(own_server: RedisServer) -> None:
    with Client(redis_url=own_server.url) as client, redis.Redis(port=own_server.port) as server:
        job_id = client.submit(prompt="x").id
        server.config_set("maxmemory", "1mb")
        with pytest.raises(StoreFull, match="maxmemory"):
            client.submit(prompt="y")
        assert client.get(job_id).status is JobStatus.QUEUED
        server.config_set("maxmemory", "0")
        assert client.submit(prompt="y").status is JobStatus.QUEUED


def test_a_replica_and_a_poor_acl_are_named(own_server: RedisServer) -> None:
    with redis.Redis(port=own_server.port) as server:
        server.execute_command("ACL", "SETUSER", "poor", "on", ">x", "~other:*", "+@all")
        with Client(redis_url=f"redis://poor:x@127.0.0.1:{own_server.port}/0") as client:
            with pytest.raises(StoreUnavailable, match="ACL"):
                client.submit(prompt="x")
        server.replicaof("127.0.0.1", str(free_port()))
        with Client(redis_url=own_server.url) as client, pytest.raises(StoreUnavailable, match="read-only replica"):
            client.submit(prompt="x")


def test_the_documented_acl_is_enough_for_the_store(own_server: RedisServer) -> None:
    with redis.Redis(port=own_server.port) as server:
        server.execute_command(*(word.replace("PASSWORD", "x") for word in documented()))
    with Client(redis_url=f"redis://safelight:x@127.0.0.1:{own_server.port}/0") as client:
        job_id = client.submit(prompt="x", group="g", idempotency_key="k", deadline_s=50).id
        finish(client, job_id)
        client.store.beat("w", {}, 5)
        assert client.store.reap(3) == client.store.stale_hints() == []
        assert client.store.queues(["tiny"]) and client.store.workers() == [{}]
        assert client.store.list(group="g").jobs and client.store.events(job_id)
        other = client.submit(prompt="y", group="h")
        client.store.claim(other.id, "w", 30)
        error = JobError(type="model_error", message="x", attempt=1)
        assert client.store.retry(other.id, 1, error, 1) is JobStatus.FAILED
        assert client.store.dead_letters() == [other.id]
        assert client.dead_letter(other.id).faults and client.dead_letters().letters
        assert client.retry_dead_letter(other.id).retry_of == other.id
        back = client.submit(prompt="z")
        client.store.claim(back.id, "w", 30)
        client.store.release(back.id, 1)
        client.abort(back.id)
        assert client.store.litter() == []
        client.store.swept([back.id])
        assert client.drain_all() == ["w"]
        client.store.leave("w")
        queue = WebhookQueue(client._redis)
        queue.enqueue(job_id)
        queue.bury(queue.due()[0])
        client.retry_webhook(job_id)
        assert client.webhook_letters() == [] and client.purge_webhooks([job_id]) == 0
        assert len(client.abort_group("h")) == 1

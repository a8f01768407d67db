"""A Redis that is stopped while its connections live: nothing fails before somebody gives up."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest

from api_stub.testing import running_api
from tasks.connection import SOCKET_TIMEOUT_S
from tasks.hints import Hinter
from tasks.local.servers import RedisServer, start_redis
from tasks.settings import Settings
from tasks.store import Hint

NUM_CALLERS = 20
#: Loose, for busy machines. Before there was a bound, callers waited for nine timeouts, or one for each caller.
MOST_S = 3 * 2 * SOCKET_TIMEOUT_S
READS = ("jobs", "jobs/a", "jobs/a/events", "jobs/a/explain", "workers", "queues", "dead-letters", "webhooks", "videos")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = start_redis(tmp_path_factory.mktemp("redis"))
    yield server
    server.process.stop()


@contextmanager
def stopped(server: RedisServer) -> Iterator[None]:
    server.process.send(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send(signal.SIGCONT)


async def call(url: str) -> list[httpx.Response]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as api:
        submits = [api.post("/v1/jobs", json={"prompt": "a"}) for _ in range(NUM_CALLERS)]
        return await asyncio.gather(*submits, *(api.get(f"/v1/{path}") for path in READS))


def test_every_request_is_answered_503_in_time(settings: Settings, server: RedisServer) -> None:
    with running_api(settings.model_copy(update={"redis_url": server.url})) as url:
        assert (
            httpx.post(f"{url}/v1/jobs", json={"prompt": "a"}).status_code == 202
        )  # some have a connection, others not
        with stopped(server):
            began_at = time.monotonic()
            replies = asyncio.run(call(url))
            took_s = time.monotonic() - began_at
        assert [reply.status_code for reply in replies] == [503] * (NUM_CALLERS + len(READS))
        for reply in replies:
            assert "json" in reply.headers["content-type"] and int(reply.headers["retry-after"]) >= 1
        assert {reply.headers["content-type"] for reply in replies[:-1]} == {"application/problem+json"}
        assert took_s < MOST_S
        assert httpx.post(f"{url}/v1/jobs", json={"prompt": "a"}).status_code == 202


def test_messages_of_many_wait_for_one_silence(server: RedisServer) -> None:
    hinter = Hinter(Settings(redis_url=server.url))
    hints = [Hint("a", "tiny", 5)]
    assert hinter.publish(hints)
    with stopped(server), ThreadPoolExecutor(NUM_CALLERS) as threads:
        began_at = time.monotonic()
        assert not any(threads.map(lambda _: hinter.publish(hints), range(NUM_CALLERS)))
        assert time.monotonic() - began_at < MOST_S
    assert hinter.publish(hints), "it must not hold the silence against a broker that is back"
    hinter.close()

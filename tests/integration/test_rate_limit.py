"""Jobs that one key may send in a while, over a real Redis and, at the end, two real API processes' worth of apps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import httpx
import pytest
import redis
from pydantic import SecretStr

from api_stub.testing import running_api
from tasks.connection import async_connect
from tasks.errors import RateLimited, StoreUnavailable
from tasks.local.process import free_port
from tasks.rate_limit import Rate, RateLimiter
from tasks.settings import Settings


def spending(redis_url: str, rate: str, story: Callable[[RateLimiter], Awaitable[None]]) -> None:
    async def run() -> None:
        settings = Settings(redis_url=redis_url)
        limiter = RateLimiter(async_connect(settings), settings.key_prefix, Rate.parse(rate))
        try:
            await story(limiter)
        finally:
            await limiter.close()

    asyncio.run(run())


async def refusal(limiter: RateLimiter, name: str, num_jobs: int = 1) -> float:
    with pytest.raises(RateLimited) as caught:
        await limiter.spend(name, num_jobs)
    return caught.value.retry_after_s


def test_a_name_has_its_own_bucket_that_fills_up_again(redis_url: str) -> None:
    async def story(limiter: RateLimiter) -> None:
        for _ in range(3):
            await limiter.spend("web")
        wait_s = await refusal(limiter, "web")
        assert 1_000 < wait_s <= 1_200, "3 an hour: the next one after 20 minutes"
        await limiter.spend("mobile", 3)
        with redis.Redis.from_url(redis_url) as client:  # half an hour passes
            client.hincrby("safelight:rate:web", "at", -1_800_000)
            assert 0 < client.pttl("safelight:rate:web") <= 3_601_000  # type: ignore[operator]
        await limiter.spend("web")
        await refusal(limiter, "web")

    spending(redis_url, "3/hour", story)


def test_a_batch_counts_as_its_jobs_and_a_large_one_is_paid_off(redis_url: str) -> None:
    async def story(limiter: RateLimiter) -> None:
        await limiter.spend("web")
        await refusal(limiter, "web", 1_000)  # not while the bucket is not full: large ones would crowd out all else
        await limiter.spend("mobile", 1_000)
        assert await refusal(limiter, "mobile") > 99 * 60

    spending(redis_url, "10/minute", story)


def test_many_processes_together_send_no_more(redis_url: str) -> None:
    async def story(limiter: RateLimiter) -> None:
        async def attempt() -> bool:
            with contextlib.suppress(RateLimited):
                await limiter.spend("web")
                return True
            return False

        assert sum(await asyncio.gather(*(attempt() for _ in range(60)))) == 25

    spending(redis_url, "25/day", story)


def test_an_outage_is_no_free_pass(redis_url: str) -> None:
    async def story(limiter: RateLimiter) -> None:
        with pytest.raises(StoreUnavailable):
            await limiter.spend("web")

    spending(f"redis://127.0.0.1:{free_port()}/0", "1/second", story)


def test_over_http_it_is_a_429_for_that_key_alone(settings: Settings) -> None:
    limited = settings.model_copy(
        update={"rate_limit": "4/hour", "api_keys": SecretStr("web:one,web:two,mobile:three")}
    )
    with running_api(limited) as url, running_api(limited) as other:

        def send(key: str, path: str, body: object = None, base: str = url) -> httpx.Response:
            return httpx.post(base + path, json=body, headers={"Authorization": f"Bearer {key}"})

        wrong = send("one", "/v1/jobs", {"prompt": ""})
        first = send("one", "/v1/jobs", {"prompt": "a"})
        assert (wrong.status_code, first.status_code) == (422, 202)
        assert send("two", "/v1/jobs/batch", {"jobs": [{"prompt": "a"}] * 2}, other).status_code == 202
        assert send("one", f"/v1/jobs/{first.json()['id']}/replay").status_code == 202
        for base in (url, other):
            for reply in (
                send("two", "/v1/jobs", {"prompt": "a"}, base),
                send("two", "/v1/jobs/batch", {"jobs": [{"prompt": "a"}]}, base),
                send("one", f"/v1/jobs/{first.json()['id']}/replay", base=base),
            ):
                assert reply.status_code == 429, "a new key of the name is the same name"
                assert reply.json()["type"].endswith("rate_limited")
                assert 0 < int(reply.headers["retry-after"]) <= 900
        assert send("three", "/v1/jobs", {"prompt": "a"}).status_code == 202
        listed = httpx.get(url + "/v1/jobs", headers={"Authorization": "Bearer one"})
        assert (listed.status_code, len(listed.json()["jobs"])) == (200, 5)

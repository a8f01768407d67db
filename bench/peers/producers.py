"""A producer of one library in a process of its own: hands jobs over, and prints what that cost it as JSON.

python -m bench.peers.producers CALL REDIS_URL JOBS

`bench.peers.enqueue` runs it, with the interpreter that has the library.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

#: what every job carries
REQUEST = {"prompt": "a red boat at sunset, oil on canvas", "num_inference_steps": 20, "metadata": {"user": "u-1"}}
#: connections, scripts and lazy imports
WARM_UPS = 50


def timed(jobs: int, send: Callable[[int], object]) -> float:
    """CPU seconds of this process for the jobs, after some that do not count."""
    send(WARM_UPS)
    print("warm", flush=True)
    sys.stdin.readline()
    began = time.process_time()
    send(jobs)
    return time.process_time() - began


def celery(url: str, jobs: int) -> float:
    from celery import Celery

    app = Celery("bare", broker=url, set_as_current=False)

    @app.task(name="bare.generate", ignore_result=True)  # type: ignore[untyped-decorator]
    def generate(**request: Any) -> None: ...

    def send(count: int) -> None:
        for _ in range(count):
            generate.apply_async(kwargs=REQUEST)

    return timed(jobs, send)


def dramatiq(url: str, jobs: int) -> float:
    import dramatiq as library
    from dramatiq.brokers.redis import RedisBroker

    library.set_broker(RedisBroker(url=url))

    @library.actor
    def generate(**request: Any) -> None: ...

    def send(count: int) -> None:
        for _ in range(count):
            generate.send(**REQUEST)

    return timed(jobs, send)


def arq(url: str, jobs: int) -> float:
    from arq import create_pool
    from arq.connections import RedisSettings

    async def sender() -> Callable[[int], Any]:
        pool = await create_pool(RedisSettings.from_dsn(url))

        async def send(count: int) -> None:
            for _ in range(count):
                await pool.enqueue_job("generate", **REQUEST)

        return send

    return in_a_loop(jobs, sender)


def taskiq(url: str, jobs: int) -> float:
    from taskiq_redis import RedisStreamBroker

    async def sender() -> Callable[[int], Any]:
        broker = RedisStreamBroker(url)

        @broker.task(task_name="generate")  # type: ignore[untyped-decorator]
        async def generate(**request: Any) -> None: ...

        await broker.startup()

        async def send(count: int) -> None:
            for _ in range(count):
                await generate.kiq(**REQUEST)

        return send

    return in_a_loop(jobs, sender)


def in_a_loop(jobs: int, sender: Callable[[], Any]) -> float:
    with asyncio.Runner() as runner:
        send = runner.run(sender())
        return timed(jobs, lambda count: runner.run(send(count)))


def submit(url: str, jobs: int) -> float:
    with _client(url) as client:

        def send(count: int) -> None:
            for _ in range(count):
                client.submit(REQUEST)

        return timed(jobs, send)


def submit_many(url: str, jobs: int) -> float:
    with _client(url) as client:
        return timed(jobs, lambda count: client.submit_many([REQUEST] * count))


def _client(url: str) -> Any:
    from tasks.client import Client
    from tasks.settings import Settings

    return Client(Settings(redis_url=url, max_queued=10_000_000))


CALLS: dict[str, Callable[[str, int], float]] = {
    call.__name__: call for call in (celery, arq, taskiq, dramatiq, submit, submit_many)
}


if __name__ == "__main__":
    name, redis_url, count = sys.argv[1:]
    print(json.dumps({"cpu_s": CALLS[name](redis_url, int(count))}), flush=True)

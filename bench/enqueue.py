"""What handing a job over costs, beside a bare Celery `apply_async` of the same request to the same Redis.

python -m bench.enqueue [--singles 200] [--rounds 7] [--many 10000] [--many-rounds 3]

A bare `apply_async` only appends a message; `submit` also checks the request and writes the record that makes the job
durable, countable and abortable. Both sides take turns within one run, so that a busy machine bends both alike.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import redis
from celery import Celery

from tasks.client import Client
from tasks.local.servers import start_redis
from tasks.settings import Settings

REQUEST = {"prompt": "a red boat at sunset, oil on canvas", "num_inference_steps": 20, "metadata": {"user": "u-1"}}


def bare_task(redis_url: str) -> Any:
    """A task of an app with Celery's defaults; results off, as ours are."""
    app = Celery("bare", broker=redis_url, set_as_current=False)

    @app.task(name="bare.generate", ignore_result=True)  # type: ignore[untyped-decorator]
    def generate(**request: Any) -> None: ...

    return generate


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(rounds: int, bare: Callable[[], object], ours: Callable[[], object]) -> tuple[list[float], list[float]]:
    """Seconds of each side, round by round; who goes first takes turns."""
    bare_s: list[float] = []
    ours_s: list[float] = []
    for number in range(rounds):
        first_is_bare = number % 2 == 0
        for is_bare in (first_is_bare, not first_is_bare):
            (bare_s if is_bare else ours_s).append(timed(bare if is_bare else ours))
    return bare_s, ours_s


def row(name: str, jobs: int, bare_s: list[float], ours_s: list[float]) -> str:
    ratios = sorted(ours / bare for bare, ours in zip(bare_s, ours_s, strict=True))
    bare_us, ours_us = (1e6 * median(times) / jobs for times in (bare_s, ours_s))
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    return f"| {name} | {jobs} | {bare_us:.0f} | {ours_us:.0f} | **{median(ratios):.2f}** | {spread} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--singles", type=int, default=200, help="calls of submit in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--many", type=int, default=10_000, help="jobs of one submit_many")
    parser.add_argument("--many-rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="safelight-bench-") as folder:
        server = start_redis(Path(folder))
        try:
            measure(server.url, options)
        finally:
            server.process.stop()


def measure(redis_url: str, options: argparse.Namespace) -> None:
    singles, many = options.singles, options.many
    task = bare_task(redis_url)
    with (
        Client(Settings(redis_url=redis_url, max_queued=10_000_000)) as client,
        redis.Redis.from_url(redis_url) as server,
    ):

        def bare(jobs: int) -> None:
            for _ in range(jobs):
                task.apply_async(kwargs=REQUEST)

        def submit() -> None:
            for _ in range(singles):
                client.submit(REQUEST)

        bare(20)
        client.submit_many([REQUEST] * 20)
        print("| call | jobs | apply_async, us a job | ours, us a job | ratio (median) | rounds |")
        print("| --- | --- | --- | --- | --- | --- |")
        print(row("submit", singles, *compare(options.rounds, lambda: bare(singles), submit)), flush=True)
        server.flushall()
        batch = compare(options.many_rounds, lambda: bare(many), lambda: client.submit_many([REQUEST] * many))
        print(row("submit_many", many, *batch), flush=True)


if __name__ == "__main__":
    main()

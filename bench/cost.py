"""Table 2: what a job costs besides its picture: CPU of worker and producer, round trips, commands and bytes of Redis.

python -m bench.cost [--jobs 400] [--singles 40] [--slow 10] [--pictures 64] [--quick]

The model is arithmetic that costs nearly nothing, so that all that is seen is overhead; the last row has the bundled
one, less what plain diffusers takes for the same pictures. Every job has 20 steps, with progress, and one stored PNG.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import redis

from bench.report import keep, options, say
from bench.stand import BarePipeline, Servers, bundled, costless, servers
from bench.wiretap import Traffic, Wiretap
from bench.yardstick import cpu_s, yardstick_s
from tasks import Client
from tasks.settings import Settings

REQUEST = {"prompt": "a red boat at sunset, oil on canvas", "num_inference_steps": 20, "guidance_scale": 4.0}
STEP_MS = 50.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one job, on average."""

    worker_ms: float
    producer_ms: float
    worker: Traffic
    producer: Traffic
    jobs: int
    #: Commands that ran in the server, those inside scripts included, and the time that scripts took. None: whoever
    #: watched asked for too much meanwhile.
    commands: float | None = None
    script_us: float | None = None

    def cells(self) -> tuple[object, ...]:
        trips, bytes_ = self.worker.round_trips / self.jobs, (self.worker.bytes_in + self.worker.bytes_out) / self.jobs
        sent = self.producer.round_trips / self.jobs, (self.producer.bytes_in + self.producer.bytes_out) / self.jobs
        in_redis = ("" if figure is None else figure for figure in (self.commands, self.script_us))
        return (self.worker_ms, trips, bytes_, self.producer_ms, *sent, *in_redis)


class Bench:
    """A worker and a producer, each behind a tap of its own; whoever waits for jobs asks Redis directly."""

    def __init__(self, found: Servers, workers: Wiretap, producers: Wiretap) -> None:
        self._taps = workers, producers
        self._watcher = found.client()
        self._client = Client(Settings(redis_url=_url(producers)))
        found.stack.callback(self._client.close)
        self._redis = found.stack.enter_context(redis.Redis.from_url(found.redis.url, decode_responses=True))
        self._pid = found.start_worker("worker", self._watcher, {"SAFELIGHT_REDIS_URL": _url(workers)}).pid
        self.at_once(16)

    def at_once(self, jobs: int) -> Cost:
        """All in one `submit_many`."""
        ended, stats = self._ended(), self._stats()

        def run() -> None:
            self._client.submit_many([REQUEST] * jobs)

        def wait() -> None:
            while self._ended() < ended + jobs:
                time.sleep(0.1)

        cost = self._measured(jobs, run, wait)
        calls, usec = (now - then for now, then in zip(self._stats(), stats, strict=True))
        return replace(cost, commands=calls / jobs, script_us=usec / jobs)

    def one_by_one(self, jobs: int) -> Cost:
        """The next is submitted when the one before has ended."""

        def run() -> None:
            for _ in range(jobs):
                job = self._watcher.wait(self._client.submit(REQUEST).id, 600)
                assert job.status == "succeeded", job.error

        return self._measured(jobs, run, lambda: None)

    def idle(self, seconds: float) -> tuple[float, float]:
        """Round trips and CPU ms a second of a worker with nothing to do."""
        traffic, cpu = self._taps[0].traffic, cpu_s(self._pid)
        time.sleep(seconds)
        spoken = self._taps[0].traffic.since(traffic).round_trips
        return spoken / seconds, 1000 * (cpu_s(self._pid) - cpu) / seconds

    def _ended(self) -> int:
        return sum(count.value for count in self._watcher.store.totals().tally.counts("ended"))

    def _measured(self, jobs: int, run: Callable[[], None], wait: Callable[[], None]) -> Cost:
        before = [tap.traffic for tap in self._taps]
        cpu, own = cpu_s(self._pid), time.thread_time()
        run()
        own_ms = 1000 * (time.thread_time() - own)
        wait()
        worker, producer = (tap.traffic.since(then) for tap, then in zip(self._taps, before, strict=True))
        return Cost(1000 * (cpu_s(self._pid) - cpu) / jobs, own_ms / jobs, worker, producer, jobs)

    def _stats(self) -> tuple[float, float]:
        stats = self._redis.info("commandstats")
        scripts = stats.get("cmdstat_evalsha", {"usec": 0})
        return sum(each["calls"] for each in stats.values()), scripts["usec"]


def _url(tap: Wiretap) -> str:
    return f"redis://127.0.0.1:{tap.port}/0"


def bare_fake_ms(rows: int = 8) -> float:
    """CPU of one row of the costless model, called as the engine calls it."""
    from engine import DiffusionRequest, SamplingParams
    from engine.batch import Batch
    from engine.request import Row
    from engine.testing import FakeAdapter

    adapter = FakeAdapter()
    params = SamplingParams(height=16, width=16, num_inference_steps=20, guidance_scale=4.0, seed=1)
    requests = [DiffusionRequest(request_id=str(k), prompt="a", params=params) for k in range(rows)]
    batch = Batch(adapter.batch_key(requests[0]), tuple(Row(request, 0) for request in requests))
    began = time.process_time()
    for _ in range(20):
        adapter.run(batch, lambda *_: None)
    return 1000 * (time.process_time() - began) / (20 * rows)


def costless_costs(chosen: argparse.Namespace) -> tuple[dict[str, Cost], tuple[float, float]]:
    with servers(costless()) as found, Wiretap(found.redis.port) as worker, Wiretap(found.redis.port) as producer:
        bench = Bench(found, worker, producer)
        costs = {"all at once": bench.at_once(chosen.jobs), "one by one": bench.one_by_one(chosen.singles)}
        idle = bench.idle(5.0)
    return costs, idle


def slow_costs(chosen: argparse.Namespace) -> Cost:
    """A job of a second: what is done by the clock counts most."""
    with (
        servers(costless(STEP_MS)) as found,
        Wiretap(found.redis.port) as worker,
        Wiretap(found.redis.port) as producer,
    ):
        return Bench(found, worker, producer).one_by_one(chosen.slow)


def bundled_ms(pictures: int) -> tuple[float, float]:
    """CPU of the worker and of plain diffusers for a picture of the bundled model, one thread of torch each."""
    os.environ["OMP_NUM_THREADS"] = "1"
    with servers(bundled(8)) as found, Wiretap(found.redis.port) as worker, Wiretap(found.redis.port) as producer:
        cost = Bench(found, worker, producer).at_once(pictures)
    bare = BarePipeline()
    bare.run(8, 8)
    began = time.process_time()
    bare.run(pictures, 8)
    return cost.worker_ms, 1000 * (time.process_time() - began) / pictures


def main() -> None:
    chosen = options(
        __doc__,
        jobs=(400, 100, "costless jobs in hand at once"),
        singles=(40, 10, "costless jobs one by one"),
        slow=(10, 3, "jobs of a second, one by one"),
        pictures=(64, 0, "of the bundled model; 0: none"),
    )
    before, fake_ms = yardstick_s(), bare_fake_ms()
    costs, (idle_trips, idle_ms) = costless_costs(chosen)
    costs[f"one by one, {STEP_MS:.0f} ms a step"] = slow_costs(chosen)
    unit = 1000 * (before + yardstick_s()) / 2
    head = ("jobs", "worker ms", "its round trips", "its bytes", "producer ms", "round trips", "bytes")
    rows = [(f"{cost.jobs} {name}", *cost.cells()) for name, cost in costs.items()]
    say(
        "Per job of 20 steps; targets: below 5 ms of worker CPU, at most 12 round trips.",
        (*head, "commands in Redis", "script us"),
        rows,
    )
    print(
        f"\nThe model itself takes {fake_ms:.2f} ms of the worker's. An idle worker: {idle_trips:.1f} round trips and"
    )
    print(f"{idle_ms:.1f} ms of CPU a second. One yardstick is {unit:.2f} ms here.")
    if chosen.pictures:
        ours, bare = bundled_ms(chosen.pictures)
        head = ("pictures", "worker ms", "plain diffusers ms", "overhead ms", "ratio")
        say("With the bundled model:", head, [(chosen.pictures, ours, bare, ours - bare, ours / bare)])
    first = costs["all at once"]
    keep(
        chosen.figures,
        {
            "cost: worker CPU of a job, in yardsticks": (first.worker_ms - fake_ms) / unit,
            "cost: producer CPU of a job, in yardsticks": first.producer_ms / unit,
            "cost: worker's round trips of a job": first.worker.round_trips / first.jobs,
            "cost: worker's round trips of a job alone": costs["one by one"].worker.round_trips / chosen.singles,
            "cost: worker's bytes of a job": (first.worker.bytes_in + first.worker.bytes_out) / first.jobs,
            "cost: commands in Redis of a job": first.commands or 0.0,
        },
    )


if __name__ == "__main__":
    main()

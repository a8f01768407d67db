"""Table 5, second half: what calls cost as the queue grows, and what a job takes of Redis' memory.

python -m bench.growth [--records 1000000] [--calls 300] [--quick]

Jobs are created with their messages, by twenty tenants in turn. What is counted is the CPU time of the server's main
thread (INFO cpu), so that neither the network nor this process nor other programs count.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import redis

from bench.report import keep, options, say, shown
from tasks.client import Client
from tasks.job import JobStatus
from tasks.local.servers import start_redis
from tasks.settings import Settings
from tasks.store import Outcome
from tasks.submission import new_job

REQUEST = {
    "prompt": "a lighthouse on a cliff above a stormy sea, oil on canvas, warm light in the window",
    "num_inference_steps": 20,
    "metadata": {"user": "u-1"},
}
FIRST = 1_000
#: Above this a cost that grows tenfold with the queue is seen as linear: a logarithm grows by a third at most.
LINEAR_FROM = 3.0
_CHUNK = 5_000


@dataclass(frozen=True, slots=True)
class Costs:
    """Server time of each call in us, by its name, and bytes of Redis for a job, at so many records."""

    records: int
    call_us: dict[str, float]
    job_bytes: float


class Grower:
    """A store that is filled step by step. `tenants` take turns as producers."""

    def __init__(self, client: Client, server: redis.Redis, num_calls: int, tenants: int = 20) -> None:
        self.client = client
        self.server = server
        self.num_calls = num_calls
        self.tenants = [f"t{number}" for number in range(tenants)]
        self.records = 0
        self._turns = itertools.cycle(self.tenants)
        self._ids: list[str] = []
        self._empty_bytes = self._used_bytes()

    def grow_to(self, records: int) -> None:
        while self.records < records:
            number = min(_CHUNK, records // len(self.tenants), records - self.records)
            tenant = next(self._turns)
            jobs = self.client.submit_many([REQUEST] * number, tenant=tenant)
            self._ids += [jobs[0].id, jobs[-1].id]
            self.records += number

    def measure(self) -> Costs:
        job_bytes = (self._used_bytes() - self._empty_bytes) / self.records
        return Costs(self.records, {name: self._cost(call) for name, call in self.calls().items()}, job_bytes)

    def calls(self) -> dict[str, Callable[[int], object]]:
        """Each by its name; the argument is its number."""
        store, client = self.client.store, self.client
        model = client.models.default.name
        last, middle = self._ids[-1], self._ids[len(self._ids) // 2]

        def create(number: int) -> None:
            store.create([new_job(REQUEST, client.models, tenant=self.tenants[number % len(self.tenants)])])

        def take_and_finish(number: int) -> None:
            claimed: Any = store.take(model, "none", "worker", 60)
            store.finish(claimed.job.id, claimed.attempt, Outcome(JobStatus.SUCCEEDED))

        return {
            "create": create,
            "take + finish": take_and_finish,
            "get, last in line (position, ETA)": lambda _: store.get(last),
            "ls, 50 newest": lambda _: store.list(limit=50),
            "ls, 50 queued": lambda _: store.list(status=JobStatus.QUEUED, limit=50),
            "explain": lambda _: store.explain(middle),
            "queues": lambda _: store.queues([model]),
            "the rescuer's round": lambda _: (store.reap(3), store.stale_hints()),
        }

    def _cost(self, call: Callable[[int], object]) -> float:
        call(0)
        before = self._cpu_us()
        for number in range(self.num_calls):
            call(number)
        return (self._cpu_us() - before) / self.num_calls

    def _cpu_us(self) -> float:
        used: Any = self.server.info("cpu")
        return 1e6 * sum(float(used[f"used_cpu_{kind}_main_thread"]) for kind in ("user", "sys"))

    def _used_bytes(self) -> int:
        info: Any = self.server.info("memory")
        return int(info["used_memory"])


def sizes(most: int) -> list[int]:
    """Powers of ten from a thousand on."""
    return [10**power for power in range(3, round(math.log10(most)) + 1)]


def steepest(costs: Sequence[Costs], name: str) -> float:
    """The largest growth of a call's cost from one size to the next, ten times as large."""
    return max((later.call_us[name] / earlier.call_us[name] for earlier, later in pairwise(costs)), default=1.0)


def shape(growth: float) -> str:
    return "flat or logarithmic" if growth < LINEAR_FROM else "grows: look at it"


def grown(most: int, num_calls: int) -> list[Costs]:
    with tempfile.TemporaryDirectory(prefix="safelight-bench-") as folder:
        server = start_redis(Path(folder), extra=("--appendonly", "no"))
        try:
            settings = Settings(redis_url=server.url, max_queued=10_000_000)
            with Client(settings) as client, redis.Redis.from_url(server.url, decode_responses=True) as own:
                grower = Grower(client, own, num_calls)
                costs = []
                for size in sizes(most):
                    grower.grow_to(size)
                    costs.append(grower.measure())
                    print(f"{size} records: {costs[-1].job_bytes:.0f} bytes a job", flush=True)
                return costs
        finally:
            server.process.stop()


def main() -> None:
    chosen = options(
        __doc__,
        records=(1_000_000, 10_000, "the most records; needs 3 GB for a million"),
        calls=(300, 100, "calls of each kind at each size"),
    )
    costs = grown(chosen.records, chosen.calls)
    head = ("server time, us a call", *(f"{each.records:,}".replace(",", " ") for each in costs), "as the queue grows")
    names = list(costs[0].call_us)
    rows = [(name, *(each.call_us[name] for each in costs), shape(steepest(costs, name))) for name in names]
    memory = ("bytes of Redis a job (target: at most 3072)", *(each.job_bytes for each in costs), "")
    say("Cost of a call by the number of queued jobs.", head, [*rows, memory])
    figures = {f"growth: {name}, {costs[-1].records} / {FIRST} records": ratio(costs, name) for name in names}
    keep(chosen.figures, figures | {"growth: bytes of Redis a queued job": costs[-1].job_bytes})
    steep = max(names, key=lambda name: steepest(costs, name))
    print(f"\nSteepest from one size to the next: {steep}, {shown(steepest(costs, steep))} times.")


def ratio(costs: Sequence[Costs], name: str) -> float:
    return costs[-1].call_us[name] / costs[0].call_us[name]


if __name__ == "__main__":
    main()

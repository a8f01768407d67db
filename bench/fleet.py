"""Table 5, first half: 1 to 8 worker processes on a model that sleeps instead of computing, with many queued jobs.

python -m bench.fleet [--workers 8] [--queued 100000] [--jobs 400] [--step-ms 20] [--quick]

A job takes 10 steps of 20 ms on the device, and 8 share a forward, so that a worker can do 40 jobs a second at the
most, and the cores of this machine bind late. The queue is filled first; what is timed is a stretch in the middle.
"""

from __future__ import annotations

import time
from typing import Any

import redis

from bench.report import keep, options, say
from bench.stand import Servers, costless, servers
from bench.yardstick import cpu_s
from tasks import Client

STEPS = 10
ROWS = 8
REQUEST = {"prompt": "a red boat at sunset", "num_inference_steps": STEPS, "guidance_scale": 4.0}


def fill(client: Client, jobs: int) -> float:
    """Jobs a second of `submit_many`, in thousands at a time."""
    began = time.perf_counter()
    for first in range(0, jobs, 1000):
        client.submit_many([REQUEST] * min(1000, jobs - first))
    return jobs / (time.perf_counter() - began)


def drained(client: Client, server: redis.Redis, pids: list[int], jobs: int) -> dict[str, float]:
    """Until so many more have ended: jobs a second, CPU of the workers a job, and how long a claim takes Redis."""

    def ended() -> int:
        return sum(count.value for count in client.store.totals().tally.counts("ended"))

    start, cpu, stats = ended(), sum(map(cpu_s, pids)), _scripts(server)
    began = time.perf_counter()
    while (done := ended() - start) < jobs:
        time.sleep(0.05)
    seconds = time.perf_counter() - began
    calls, usec = (now - then for now, then in zip(_scripts(server), stats, strict=True))
    worker_ms = 1000 * (sum(map(cpu_s, pids)) - cpu) / done
    return {"jobs/s": done / seconds, "worker ms": worker_ms, "script us a call": usec / calls}


def _scripts(server: redis.Redis) -> tuple[float, float]:
    stats: Any = server.info("commandstats")
    return float(stats["cmdstat_evalsha"]["calls"]), float(stats["cmdstat_evalsha"]["usec"])


def take_ms(client: Client, times: int = 50) -> float:
    """Median milliseconds of a claim as a worker makes it, in the middle of it all; the jobs are given back."""
    taken = []
    for number in range(times):
        began = time.perf_counter()
        claimed: Any = client.store.take(client.models.default.name, f"none-{number}", "bench", 60)
        taken.append(1000 * (time.perf_counter() - began))
        client.store.release(claimed.job.id, claimed.attempt)
    return sorted(taken)[times // 2]


def grow(found: Servers, most: int, jobs: int, client: Client) -> list[dict[str, float]]:
    """One row for each number of workers: 1, 2, 4, …"""
    rows: list[dict[str, float]] = []
    pids: list[int] = []
    with redis.Redis.from_url(found.redis.url, decode_responses=True) as server:
        number = 1
        while number <= most:
            while len(pids) < number:
                pids.append(found.start_worker(f"w{len(pids)}", client).pid)
            fill(client, 4 * jobs * number)  # those that ran went on while the others started
            drained(client, server, pids, 8 * number)  # all have begun
            row = drained(client, server, pids, jobs * number)
            rows.append({"workers": float(number), **row, "claim ms": take_ms(client)})
            print(f"{number} workers: {row['jobs/s']:.1f} jobs/s", flush=True)
            number *= 2
    return rows


def main() -> None:
    chosen = options(
        __doc__,
        workers=(8, 2, "processes at the most"),
        queued=(100_000, 2_000, "jobs in the queue before the first worker starts"),
        jobs=(400, 100, "timed, for each worker"),
        step_ms=(20.0, 20.0, "that the model sleeps"),
    )
    ideal = ROWS * 1000 / (STEPS * chosen.step_ms)
    with servers(costless(chosen.step_ms, ROWS)) as found:
        client = found.client()
        filled = fill(client, chosen.queued)
        rows = grow(found, chosen.workers, chosen.jobs, client)
    first = rows[0]["jobs/s"]
    head = (
        "workers",
        "jobs/s",
        "of the ideal",
        "times one worker's",
        "worker ms a job",
        "claim ms",
        "script us a call",
    )
    cells = [
        (
            int(row["workers"]),
            row["jobs/s"],
            row["jobs/s"] / (ideal * row["workers"]),
            row["jobs/s"] / first,
            row["worker ms"],
            row["claim ms"],
            row["script us a call"],
        )
        for row in rows
    ]
    say(
        f"{chosen.queued} queued jobs ({filled:.0f} a second by `submit_many`); a worker's ideal: {ideal:.0f} jobs/s.",
        head,
        cells,
    )
    keep(
        chosen.figures,
        {
            "fleet: jobs/s of two workers / one": rows[1]["jobs/s"] / first,
            "fleet: one worker / its ideal": first / ideal,
        },
    )


if __name__ == "__main__":
    main()

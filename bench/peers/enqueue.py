"""The peers' rows of table 3: what handing a job over costs, by call, to a Redis of its own each time.

python -m bench.peers.enqueue [--jobs 2000] [--rounds 3] [--json FILE]

Each producer is a process with the interpreter that has its library. Every call carries the same request; `submit` also
checks it and writes the record. None of arq, taskiq, dramatiq and Celery has a call for many jobs at once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis

from bench.peers import tables
from bench.peers.command import show
from bench.peers.enqueue_figures import Cost, middle
from bench.peers.systems import PEERS_PYTHON, ROOT
from tasks.local.servers import start_redis

ARQ_PYTHON = PEERS_PYTHON.parents[1] / "arq" / "bin" / "python"
#: call of `bench.peers.producers`, its name in the table, its interpreter
CALLS = (
    ("celery", "celery `apply_async`", Path(sys.executable)),
    ("arq", "arq `enqueue_job`", ARQ_PYTHON),
    ("taskiq", "taskiq `kiq` (streams)", PEERS_PYTHON),
    ("dramatiq", "dramatiq `send`", PEERS_PYTHON),
    ("submit", "safelight `submit`", Path(sys.executable)),
    ("submit_many", "safelight `submit_many`", Path(sys.executable)),
)


def cost(call: str, name: str, python: Path, jobs: int) -> Cost:
    """One round of one call."""
    with tempfile.TemporaryDirectory(prefix="safelight-bench-") as folder:
        server = start_redis(Path(folder))
        try:
            with redis.Redis.from_url(server.url) as client:
                before, after, cpu_s = produced(call, python, server.url, jobs, client)
        finally:
            server.process.stop()
    each = {key: (after[key] - before[key]) / jobs for key in before}
    redis_ms = 1000 * each["cpu_s"]
    return Cost(name, jobs, 1000 * cpu_s / jobs, redis_ms, each["reads"], each["commands"], each["memory_bytes"])


def produced(
    call: str, python: Path, url: str, jobs: int, client: Any
) -> tuple[dict[str, float], dict[str, float], float]:
    """Redis before and after the jobs, and the producer's CPU seconds for them."""
    command = [str(python), "-m", "bench.peers.producers", call, url, str(jobs)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as producer:
        assert producer.stdin is not None and producer.stdout is not None
        if producer.stdout.readline() != "warm\n":
            raise RuntimeError(f"the producer of {call} did not start")
        before = seen(client)
        producer.stdin.write("\n")
        producer.stdin.flush()
        cpu_s = json.loads(producer.stdout.readline())["cpu_s"]
        return before, seen(client), cpu_s


def seen(client: Any) -> dict[str, float]:
    """What Redis has done so far and holds. Commands with those that scripts call; a read is what came in one piece."""
    facts = client.info("everything")
    return {
        "commands": facts["total_commands_processed"],
        "reads": facts["total_reads_processed"],
        "cpu_s": facts["used_cpu_user"] + facts["used_cpu_sys"],
        "memory_bytes": facts["used_memory"],
    }


def run(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The table, and the rounds behind it; the calls take turns."""
    rounds: dict[str, list[Cost]] = {name: [] for _, name, _ in CALLS}
    for number in range(options.rounds):
        turn = number % len(CALLS)
        for call, name, python in (*CALLS[turn:], *CALLS[:turn]):
            rounds[name].append(cost(call, name, python, options.jobs))
            print(f"  round {number + 1}, {name}: {rounds[name][-1].cpu_ms:.3f} ms", file=sys.stderr)
    text = tables.enqueue_table([middle(costs) for costs in rounds.values()])
    return text, {"rounds": [one.as_json() for costs in rounds.values() for one in costs]}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="a file for all figures")
    return parser.parse_args(arguments)


def main() -> None:
    show(parse(), run)


if __name__ == "__main__":
    main()

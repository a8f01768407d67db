"""Table 6: what it takes to import, to ask for help, and from a worker's start to its first job.

python -m bench.startup [--rounds 7] [--quick]

Times are CPU seconds of the child, which a busy machine bends least; on an idle one they are the wall's.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time

from bench.report import keep, options, say, spread
from bench.stand import bundled, costless, servers
from bench.yardstick import cpu_s

COMMANDS = {
    "python, nothing else": ["-c", "pass"],
    "import tasks": ["-c", "import tasks"],
    "from tasks import Client": ["-c", "from tasks import Client"],
    "from tasks import AsyncClient": ["-c", "from tasks import AsyncClient"],
    "safelight --help": ["-m", "tasks.cli", "--help"],
    "safelight submit --help": ["-m", "tasks.cli", "submit", "--help"],
    "import api_stub.app": ["-c", "import api_stub.app"],
    "import worker.node": ["-c", "import worker.node"],
}
TARGETS = {"from tasks import Client": 0.4, "safelight --help": 0.3}


def once(command: list[str]) -> tuple[float, float]:
    """CPU and wall seconds of a child of this Python."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s


def first_job_s(models: str) -> tuple[float, float]:
    """Seconds from a worker's start until a job that waited for it has ended, and its CPU seconds until then."""
    with servers(models) as found:
        client = found.client()
        job = client.submit({"prompt": "a red boat", "num_inference_steps": 1})
        began = time.perf_counter()
        worker = found.start("worker", ["-m", "worker"])
        assert client.wait(job.id, 300).status == "succeeded"
        return time.perf_counter() - began, cpu_s(worker.pid)


def main() -> None:
    chosen = options(__doc__, rounds=(7, 3, "of each"))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for command in COMMANDS.values():
        once(command)  # bytecode, and the page cache
    taken = {name: [once(command) for _ in range(chosen.rounds)] for name, command in COMMANDS.items()}
    cpu = {name: [one[0] for one in each] for name, each in taken.items()}
    rows = [
        (f"`{name}`", spread(cpu[name]), min(wall for _, wall in taken[name]), TARGETS.get(name, ""))
        for name in COMMANDS
    ]
    say("To start.", ("command", "CPU s", "wall s, best", "target"), rows)
    starts = {"costless": first_job_s(costless()), "bundled": first_job_s(bundled(8))}
    say("From a worker's start to its first job's end.", ("model", "s", "CPU s"), [(n, *s) for n, s in starts.items()])
    bare = statistics.median(cpu["python, nothing else"])
    names = ("import tasks", "from tasks import Client", "safelight --help", "import worker.node")
    keep(chosen.figures, {f"startup: {name} / bare python": statistics.median(cpu[name]) / bare for name in names})


if __name__ == "__main__":
    main()

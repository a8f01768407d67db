"""CPU seconds of a system: of its whole tree of processes, and of the one thread that computes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Snapshot:
    """CPU seconds so far, by process and by (process, thread)."""

    processes: Mapping[int, float]
    threads: Mapping[tuple[int, int], float]


def tree(roots: Sequence[int]) -> list[psutil.Process]:
    found: dict[int, psutil.Process] = {}
    for pid in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(pid)
            for process in (root, *root.children(recursive=True)):
                found[process.pid] = process
    return list(found.values())


def snapshot(roots: Sequence[int]) -> Snapshot:
    processes: dict[int, float] = {}
    threads: dict[tuple[int, int], float] = {}
    for process in tree(roots):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            processes[process.pid] = times.user + times.system
            for thread in process.threads():
                threads[process.pid, thread.id] = thread.user_time + thread.system_time
    return Snapshot(processes, threads)


def spent(before: Snapshot, after: Snapshot) -> tuple[float, float]:
    """Seconds of all processes, and of the busiest thread, between two looks; whoever is new began at 0."""
    total_s = sum(seconds - before.processes.get(pid, 0.0) for pid, seconds in after.processes.items())
    busiest_s = max((seconds - before.threads.get(key, 0.0) for key, seconds in after.threads.items()), default=0.0)
    return total_s, busiest_s

"""Who works, and what waits for nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tasks.doctor.finding import Finding, fail, ok, warn
from tasks.store import QueueStats


def judge_workers(
    workers: Sequence[Mapping[str, Any]], queues: Sequence[QueueStats], configured: Sequence[str], dead_letters: int
) -> Iterator[Finding]:
    """`queues`: of the models of the file here, and of all that ever had a job."""
    yield _alive(workers, queues)
    served = {name for worker in workers if worker.get("state") == "ready" for name in worker.get("models", {})}
    for queue in queues:
        if workers and (queue.model in configured or queue.queued):
            yield _queue(queue, queue.model in served, queue.model in configured)
    yield _dead(dead_letters)


def _alive(workers: Sequence[Mapping[str, Any]], queues: Sequence[QueueStats]) -> Finding:
    if not workers:
        waiting = sum(queue.queued for queue in queues)
        start = "start one: safelight worker"
        if waiting:
            return fail("workers.alive", f"no worker is up, and {_jobs(waiting)}", start)
        return warn("workers.alive", "no worker is up", start)
    said = [f"{worker['name'].partition(':')[0]} ({worker.get('state')})" for worker in workers]
    more = f" and {len(said) - 4} more" if len(said) > 4 else ""
    return ok("workers.alive", f"{len(workers)} up: {', '.join(said[:4])}{more}")


def _queue(queue: QueueStats, is_served: bool, is_configured: bool) -> Finding:
    check = f"workers.{queue.model}.queue"
    if is_served:
        return ok(check, f"served; {queue.queued} queued, {queue.running} running")
    if not is_configured:
        found = f"{_jobs(queue.queued)} for a model that no worker serves and the models file here does not have"
        return fail(check, found, f"serve {queue.model} again, or end them: safelight abort")
    start = f"start one: safelight worker --model {queue.model}"
    if queue.queued:
        return fail(check, f"{_jobs(queue.queued)}, and no worker serves it", start)
    return warn(check, "no worker serves it", start)


def _jobs(number: int) -> str:
    return f"{number} job waits" if number == 1 else f"{number} jobs wait"


def _dead(number: int) -> Finding:
    if not number:
        return ok("workers.dead_letters", "none")
    many = f"{number}{' or more' if number >= 100 else ''}"
    remedy = "look at them: safelight dead-letter ls"
    return warn("workers.dead_letters", f"{many} kept for an operator", remedy)

"""One run: start everything, send and harm for a while, wait for quiet, stop everything, count."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import redis

from tests.chaos.evidence import read_steps, read_stored
from tests.chaos.faults import Faults
from tests.chaos.plan import FaultKind, Plan, make_plan
from tests.chaos.processes import Processes
from tests.chaos.producers import Producers
from tests.chaos.receiver import Receiver
from tests.chaos.story import Evidence
from tests.chaos.witness import Witness

log = logging.getLogger(__name__)

#: How long the last job, and then the last webhook, may take once every fault is over. Generous: it is a bound.
_QUIET_S, _WEBHOOKS_S, _START_S = 240.0, 150.0, 90.0


@dataclass
class Outcome:
    plan: Plan
    evidence: Evidence
    faults: Counter[str]
    starts: dict[str, int]
    exits: Counter[int]
    quiet_s: float
    #: How often a worker found no room for finished outputs, after it had found some.
    num_disk_full: int
    logs: str


def run_chaos(home: Path, *, seed: int, seconds: float, num_jobs: int) -> Outcome:
    with contextlib.ExitStack() as stack:
        receiver = Receiver(seed)
        stack.callback(receiver.stop)
        processes = Processes(home)
        stack.callback(processes.stop_servers)
        stack.callback(processes.stop)
        without: frozenset[FaultKind] = frozenset() if processes.disk.is_there else frozenset({"disk full"})
        plan = make_plan(seed, seconds, num_jobs, receiver.url, without)
        processes.start()
        _wait_for_workers(processes)
        witness = Witness(processes.direct)
        witness.start()
        faults, producers = Faults(processes), Producers(processes, plan.jobs)
        began = time.monotonic()
        with producers.sending(began):
            faults.run(plan.faults, began)
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            faults.finish()
        healed = time.monotonic()
        is_quiet = _wait_for_quiet(processes, producers, receiver)
        quiet_s = time.monotonic() - healed
        processes.stop()
        witness.stop()
        evidence = Evidence(
            tickets=producers.tickets,
            stored=read_stored(processes.direct),
            moves=witness.moves,
            ended=witness.ended,
            leases=witness.leases,
            steps=read_steps(processes.step_log, (time.time() - time.monotonic()) * 1000),
            told=receiver.told,
            deaths=processes.deaths,
            unfinished=not is_quiet,
        )
        starts = {name: ward.num_starts for name, ward in processes.wards.items()}
        exits = Counter(code for ward in processes.wards.values() for code in ward.exits)
        num_disk_full = processes.num_logged("No space left on device")
        return Outcome(plan, evidence, faults.done, starts, exits, quiet_s, num_disk_full, processes.logs())


def _wait_for_workers(processes: Processes) -> None:
    with redis.Redis.from_url(processes.direct.redis_url) as client:
        assert _until(lambda: client.zcard("safelight:workers") >= 2, _START_S), processes.logs()


def _wait_for_quiet(processes: Processes, producers: Producers, receiver: Receiver) -> bool:
    """All jobs ended, and the ends of those with a webhook told; or patience is over."""
    with redis.Redis.from_url(processes.direct.redis_url, decode_responses=True) as client:

        def num_live() -> int:
            return sum(client.zcard(f"safelight:status:{status}") for status in ("queued", "running"))

        if not _until(lambda: num_live() == 0, _QUIET_S):
            return False
        planned = [ticket.planned for ticket in producers.tickets if "webhook_url" in ticket.planned.body]
        ids = {str(client.get(f"safelight:idem:{job.scope}") or job.name) for job in planned}
        wanted = {job_id for job_id in ids if client.exists(f"safelight:job:{job_id}")}
        return _until(lambda: wanted <= receiver.taken(), _WEBHOOKS_S)


def _until(condition: object, timeout_s: float) -> bool:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(redis.RedisError):
            if condition():
                return True
        time.sleep(0.2)
    return False

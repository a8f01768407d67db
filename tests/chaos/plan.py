"""What a run will do, drawn from its seed: the jobs and when each is sent, the faults and when each strikes. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

LEASE_S = 3.0
NUM_PRODUCERS = 4
#: Producers with an even number speak HTTP, the others are `tasks.Client`s.
WORKERS, APIS = ("w1", "w2"), ("a1", "a2")
#: The worker whose clock can be wrong.
SKEWED = "w2"
#: One in request mode, one in step mode.
STEPWISE = "steps"
MODELS = ("rows", STEPWISE)
MAX_BATCH_ROWS, LOOK_AHEAD_ROWS = 4, 8
#: Jobs that a worker takes on at a time.
PLACES = len(MODELS) * MAX_BATCH_ROWS + LOOK_AHEAD_ROWS
#: What `SAFELIGHT_TENANTS` names. Each limit has room for the largest job.
TENANTS_FILE = """\
[default]
max_running_rows = 6
[blue]
weight = 3
[green]
max_queued_rows = 60
max_running_rows = 3
[groups]
max_running_rows = 3
"""
TENANTS = ("default", "blue", "green")


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """`name` is its idempotency key, or its id where `by_id`."""

    name: str
    at_s: float
    producer: int
    tenant: str
    body: dict[str, Any]
    by_id: bool
    #: Sent again when its answer is lost, and once more when it is not.
    resend: bool
    abort_after_s: float | None

    @property
    def scope(self) -> str:
        """Its idempotency key as Redis has it: each tenant's are its own."""
        return self.name if self.tenant == "default" else f"{self.tenant}\n{self.name}"

    @property
    def may_be_aborted(self) -> bool:
        return self.abort_after_s is not None or "group" in self.body


FaultKind = Literal[
    "kill worker", "kill worker in calm", "freeze worker", "zombie", "drain worker", "hurry worker", "kill api",
    "freeze api", "kill redis", "kill clients", "redis cut", "redis silent", "redis deaf", "redis late", "redis slow",
    "redis refuse", "s3 http_500", "s3 http_500_after", "s3 refuse", "s3 slow", "s3 silent", "s3 deaf", "clock",
    "disk full",
]  # fmt: skip


#: These wait until both workers serve, and have the stage to themselves. A zombie is frozen until another worker runs
#: what it held, and then goes on.
CALM: tuple[FaultKind, ...] = ("kill worker in calm", "zombie")
CALM_S = LEASE_S + 6


@dataclass(frozen=True, slots=True)
class Fault:
    at_s: float
    kind: FaultKind
    #: A process, or the owner of the connection that is harmed.
    target: str
    for_s: float
    #: Of the clock's jump, in seconds.
    amount: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    seconds: float
    jobs: tuple[PlannedJob, ...]
    faults: tuple[Fault, ...]


def make_plan(seed: int, seconds: float, num_jobs: int, webhook_url: str, without: frozenset[FaultKind]) -> Plan:
    """The same for the same arguments, but for the receiver's port. Faults of the kinds `without` do not happen."""
    chance = random.Random(seed)
    jobs = [_job(chance, number, chance.uniform(0, seconds), webhook_url) for number in range(num_jobs)]
    faults = tuple(fault for fault in _faults(random.Random(f"faults {seed}"), seconds) if fault.kind not in without)
    return Plan(seed, seconds, tuple(sorted(jobs, key=lambda job: job.at_s)), faults)


def _job(chance: random.Random, number: int, at_s: float, webhook_url: str) -> PlannedJob:
    producer = number % NUM_PRODUCERS
    body: dict[str, Any] = {
        "prompt": f"job {number}",
        "model": chance.choice(MODELS),
        "seed": chance.randrange(2**40),
        "height": chance.choice([16, 16, 24, 32]),
        "width": chance.choice([16, 16, 24]),
        "num_inference_steps": chance.choice([2, 4, 8, 16, 30, 60, 100, 200]),
        "priority": chance.randrange(10),
        "num_outputs": chance.choice([1, 1, 1, 2, 3]),
        "metadata": {"number": number},
    }
    if chance.random() < 0.15:
        body |= {"group": f"g{chance.randrange(8)}", "supersede": chance.random() < 0.6}
    if chance.random() < 0.1:
        body["deadline_s"] = chance.choice([1.0, 3.0, 20.0])
    if chance.random() < 0.4:
        body["webhook_url"] = f"{webhook_url}/{number}"
    if chance.random() < 0.1:
        body["preview_every"] = 4
    if chance.random() < 0.05:
        body["exact"] = True
    return PlannedJob(
        name=f"chaos-{number}",
        at_s=at_s,
        producer=producer,
        tenant=chance.choice(TENANTS),
        body=body,
        by_id=producer % 2 == 1 and chance.random() < 0.5,
        resend=chance.random() < 0.7,
        abort_after_s=chance.expovariate(1.5) if chance.random() < 0.15 else None,
    )


_KINDS: tuple[FaultKind, ...] = FaultKind.__args__  # type: ignore[attr-defined]


def _faults(chance: random.Random, seconds: float) -> list[Fault]:
    """Every kind in a new order, again and again, about one in 1.2 s; a calm one has the stage to itself."""
    faults: list[Fault] = []
    deck: list[FaultKind] = []
    at_s = 1.0
    while at_s < seconds - 1:
        deck = deck or chance.sample(_KINDS, len(_KINDS))
        kind = deck.pop()
        is_calm = kind in CALM
        at_s += 2 * LEASE_S + 1 if is_calm else 0.0
        if at_s > seconds - 1:
            break
        faults.append(_fault(chance, at_s, seconds, kind))
        at_s += CALM_S if is_calm else min(chance.expovariate(1 / 1.2), 3.0)
    return faults


def _fault(chance: random.Random, at_s: float, ends_s: float, kind: FaultKind) -> Fault:
    part = kind.split()
    targets: tuple[str, ...] = ("all",)
    for_s, amount = chance.uniform(0.3, 3.0), 0.0
    if part[-1] in ("worker", "calm", "zombie"):
        targets = WORKERS
    elif part[-1] == "api":
        targets = APIS
    elif part[0] == "redis":
        targets = (*WORKERS, *WORKERS, *APIS, "producers")
    elif part[0] == "s3":
        targets, for_s = WORKERS, chance.uniform(1.0, 5.0)
    elif kind == "disk full":
        targets, for_s = ("spool",), chance.uniform(2.0, 6.0)
    elif kind == "clock":
        targets, amount, for_s = (SKEWED,), chance.choice([-7200.0, -30.0, 40.0, 7200.0]), chance.uniform(2.0, 6.0)
    if part[0] == "freeze":
        for_s = chance.choice([0.5, 1.0, 1.5 * LEASE_S, 2.5 * LEASE_S])
    if kind == "redis silent":
        for_s = chance.uniform(1.0, 6.0)
    return Fault(round(at_s, 3), kind, chance.choice(targets), round(min(for_s, ends_s - at_s), 3), amount)

"""What handing a job over cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Cost:
    """For a job: CPU of producer and Redis in ms, round trips, commands that Redis ran, bytes that it then held."""

    call: str
    jobs: int
    cpu_ms: float
    redis_cpu_ms: float
    round_trips: float
    commands: float
    memory_bytes: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def middle(costs: Sequence[Cost]) -> Cost:
    """Field by field the median over rounds of one call."""
    first = costs[0]
    numbers = ("cpu_ms", "redis_cpu_ms", "round_trips", "commands", "memory_bytes")
    return Cost(first.call, first.jobs, *(median(getattr(cost, name) for cost in costs) for name in numbers))

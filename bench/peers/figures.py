"""From what was seen to what a table shows. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

#: levels of 255: by how much a pixel may differ from the bare pipeline's, for rounding in a batch
TOLERANCE = 2


@dataclass(frozen=True, slots=True)
class Answer:
    """One request's arrival and end on one clock, and by how many levels its worst pixel is off (None: no picture)."""

    arrived_s: float
    ended_s: float
    off_by: int | None

    @property
    def latency_s(self) -> float:
        return self.ended_s - self.arrived_s


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds over a run: of all processes of a system, of its busiest thread, and of the other systems at rest."""

    total_s: float
    busiest_thread_s: float
    others_s: float


@dataclass(frozen=True, slots=True)
class Cell:
    """One system at one rate. Seconds, and shares from 0 to 1."""

    system: str
    rate: float
    requests: int
    images_per_s: float
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    idle_share: float
    cpu_s_per_image: float
    others_cpu_share: float
    wrong: int
    missing: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def percentile(values: Sequence[float], share: float) -> float:
    """Of the sorted values, the first that at least `share` of them do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def outstanding_s(answers: Iterable[Answer]) -> float:
    """For how long at least one request was in the system: the time in which its device had something to do."""
    total_s, until_s = 0.0, -math.inf
    for one in sorted(answers, key=lambda answer: answer.arrived_s):
        total_s += max(0.0, one.ended_s - max(one.arrived_s, until_s))
        until_s = max(until_s, one.ended_s)
    return total_s


def summarise(system: str, rate: float, answers: Sequence[Answer], usage: Usage) -> Cell:
    """Latency counts every request, rendered or not; images are those that came."""
    latencies = [answer.latency_s for answer in answers]
    span_s = max(answer.ended_s for answer in answers) - min(answer.arrived_s for answer in answers)
    came = [answer for answer in answers if answer.off_by is not None]
    return Cell(
        system=system,
        rate=rate,
        requests=len(answers),
        images_per_s=len(came) / span_s,
        mean_s=statistics.fmean(latencies),
        p50_s=percentile(latencies, 0.50),
        p95_s=percentile(latencies, 0.95),
        p99_s=percentile(latencies, 0.99),
        idle_share=max(0.0, 1 - usage.busiest_thread_s / outstanding_s(answers)),
        cpu_s_per_image=usage.total_s / max(1, len(came)),
        others_cpu_share=usage.others_s / span_s,
        wrong=sum(answer.off_by > TOLERANCE for answer in came if answer.off_by is not None),
        missing=len(answers) - len(came),
    )

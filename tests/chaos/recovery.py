"""How long the jobs of a killed worker take to be queued again, and to begin anew; pure, from the evidence."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.chaos.plan import PLACES
from tests.chaos.shares import has_room, limits_of
from tests.chaos.story import Evidence, Life, lives

_CRASHES_TO_SOLO = 2


@dataclass(frozen=True, slots=True)
class Recovery:
    """Of a job whose worker was killed: ms from the death to being queued again, to its next attempt, and to that
    without the time in which the other worker could not take it."""

    job_id: str
    is_calm: bool
    requeued_ms: float
    restarted_ms: float | None = None
    unhindered_ms: float | None = None


def recoveries(evidence: Evidence) -> list[Recovery]:
    every = {job_id: lives(evidence, job_id) for job_id in evidence.accepted}
    found: list[Recovery] = []
    for death in evidence.deaths:
        for job_id, mine in every.items():
            for at, life in enumerate(mine):
                if life.pid == death.pid and life.lapsed and life.began_ms <= death.at_ms < life.ended_ms:
                    requeued_ms = life.ended_ms - death.at_ms
                    if at + 1 == len(mine):
                        found.append(Recovery(job_id, death.is_calm, requeued_ms))
                        continue
                    began_ms = mine[at + 1].began_ms
                    hindered_ms = _hindered_ms(evidence, every, job_id, life, began_ms)
                    restarted_ms = began_ms - death.at_ms
                    found.append(Recovery(job_id, death.is_calm, requeued_ms, restarted_ms, restarted_ms - hindered_ms))
    return found


def _hindered_ms(evidence: Evidence, every: dict[str, list[Life]], job_id: str, lost: Life, until_ms: float) -> float:
    """How much of the time from the lost attempt's end on no worker but the dead one could have taken the job."""
    from_ms = lost.ended_ms
    edges = {edge for mine in every.values() for life in mine for edge in (life.began_ms, life.ended_ms)}
    cuts = sorted({from_ms, until_ms, *(edge for edge in edges if from_ms < edge < until_ms)})
    return sum(
        end - begin
        for begin, end in pairwise(cuts)
        if not _could_take(evidence, every, job_id, lost.host, (begin + end) / 2)
    )


def _could_take(evidence: Evidence, every: dict[str, list[Life]], job_id: str, dead: str, at_ms: float) -> bool:
    """Whether the other worker had a place free, no job in quarantine, and the job's tenant and group had room."""
    running, in_hand = Counter[str](), 0
    for other, mine in every.items():
        planned = evidence.by_id[other].planned
        for at, life in enumerate(mine):
            if not life.began_ms <= at_ms < life.ended_ms:
                continue
            running.update(dict.fromkeys(limits_of(planned), planned.body["num_outputs"]))
            in_hand += life.host != dead
            if life.host != dead and sum(earlier.lapsed for earlier in mine[:at]) >= _CRASHES_TO_SOLO:
                return False
    return in_hand < PLACES and has_room(running, evidence.by_id[job_id].planned)


def spread_s(values: Sequence[float]) -> str:
    if not values:
        return "none"
    return f"median {statistics.median(values) / 1000:.1f} s, p95 {p95_s(values):.1f} s, n {len(values)}"


def p95_s(values: Sequence[float]) -> float:
    ranked = sorted(values) or [0.0]
    return ranked[min(len(ranked) - 1, int(0.95 * len(ranked)))] / 1000

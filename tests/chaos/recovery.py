"""How long the jobs of a killed worker take to be queued again, and to begin anew; pure, from the evidence."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from tests.chaos.plan import PLACES
from tests.chaos.processes import Death
from tests.chaos.shares import has_room, limits_of
from tests.chaos.story import Evidence, Life, lives, waits

_CRASHES_TO_SOLO, _PRIORITY_WORTH_MS = 2, 60_000


@dataclass(frozen=True, slots=True)
class Recovery:
    """Of a job whose worker was killed: ms from the death to being queued again, and to its next attempt; that also
    without the time in which the other worker could not take it or others came first, as far as the calm goes."""

    job_id: str
    is_calm: bool
    requeued_ms: float
    restarted_ms: float | None = None
    unhindered_ms: float | None = None


class Course:
    """Where every job was at any moment."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.lives = {job_id: lives(evidence, job_id) for job_id in evidence.accepted}
        self._waits = {job_id: waits(evidence, job_id) for job_id in evidence.accepted}
        spans = [(life.began_ms, life.ended_ms) for mine in self.lives.values() for life in mine]
        spans += [span for mine in self._waits.values() for span in mine]
        self._edges = {edge for span in spans for edge in span}

    def hindered_ms(self, job_id: str, from_ms: float, until_ms: float, dead: str) -> float:
        """How much of the time no worker but the dead one could have taken the job, or others were before it."""
        cuts = sorted({from_ms, until_ms, *(edge for edge in self._edges if from_ms < edge < until_ms)})
        return sum(
            end - begin
            for begin, end in pairwise(cuts)
            if not self._is_first((begin + end) / 2, job_id) or not self._has_place((begin + end) / 2, job_id, dead)
        )

    def _line(self, job_id: str) -> tuple[str, str]:
        planned = self._evidence.by_id[job_id].planned
        return planned.tenant, planned.body["model"]

    def _place(self, job_id: str) -> float:
        priority = self._evidence.by_id[job_id].planned.body["priority"]
        return int(self._evidence.record(job_id)["created"]) - priority * _PRIORITY_WORTH_MS

    def _is_first(self, at_ms: float, job_id: str) -> bool:
        """Of its tenant's jobs that wait for the model."""
        return not any(
            self._line(other) == self._line(job_id) and self._place(other) < self._place(job_id)
            for other, mine in self._waits.items()
            if any(begin <= at_ms < end for begin, end in mine)
        )

    def _has_place(self, at_ms: float, job_id: str, dead: str) -> bool:
        """On the other worker, which has no job in quarantine, and within the limits of the job's tenant and group."""
        running, in_hand = Counter[str](), 0
        for other, mine in self.lives.items():
            planned = self._evidence.by_id[other].planned
            for at, life in enumerate(mine):
                if not life.began_ms <= at_ms < life.ended_ms:
                    continue
                running.update(dict.fromkeys(limits_of(planned), planned.body["num_outputs"]))
                in_hand += life.host != dead
                if life.host != dead and sum(earlier.lapsed for earlier in mine[:at]) >= _CRASHES_TO_SOLO:
                    return False
        return in_hand < PLACES and has_room(running, self._evidence.by_id[job_id].planned)


def recoveries(evidence: Evidence) -> list[Recovery]:
    course, found = Course(evidence), list[Recovery]()
    for death in evidence.deaths:
        for job_id, mine in course.lives.items():
            for life, following in zip_longest(mine, mine[1:]):
                if life.pid == death.pid and life.lapsed and life.began_ms <= death.at_ms < life.ended_ms:
                    found.append(_recovery(course, job_id, death, life, following))
    return found


def _recovery(course: Course, job_id: str, death: Death, lost: Life, following: Life | None) -> Recovery:
    requeued_ms, is_calm = lost.ended_ms - death.at_ms, death.calm_until_ms is not None
    if following is None:
        return Recovery(job_id, is_calm, requeued_ms)
    until_ms = min(following.began_ms, death.calm_until_ms or following.began_ms)
    hindered_ms = course.hindered_ms(job_id, lost.ended_ms, until_ms, lost.host)
    unhindered_ms = max(requeued_ms, until_ms - death.at_ms - hindered_ms)
    return Recovery(job_id, is_calm, requeued_ms, following.began_ms - death.at_ms, unhindered_ms)


def spread_s(values: Sequence[float]) -> str:
    if not values:
        return "none"
    return f"median {statistics.median(values) / 1000:.1f} s, p95 {p95_s(values):.1f} s, n {len(values)}"


def p95_s(values: Sequence[float]) -> float:
    ranked = sorted(values) or [0.0]
    return ranked[min(len(ranked) - 1, int(0.95 * len(ranked)))] / 1000

"""The judges of times and limits see what they are for; pure."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.evidence import Step, Stored
from tests.chaos.plan import PlannedJob
from tests.chaos.processes import Death
from tests.chaos.producers import Ticket
from tests.chaos.recovery import recoveries
from tests.chaos.shares import beyond_limits
from tests.chaos.story import Evidence
from tests.chaos.witness import Move

DEAD, OTHER = "w1:11:aa", "w2:22:bb"
#: (ms, status, attempt, worker)
Moves = list[tuple[int, str, int, str | None]]


class Run:
    """The evidence of jobs that are told move by move."""

    def __init__(self) -> None:
        self._tickets: list[Ticket] = []
        self._records: dict[str, dict[str, str]] = {}
        self._moves: dict[str, list[Move]] = {}

    def job(self, name: str, moves: Moves, *, lost: str = "", tenant: str = "green", **body: Any) -> None:
        body = {"num_outputs": 1, "priority": 5, "model": "rows", **body}
        self._tickets.append(Ticket(PlannedJob(name, 0, 0, tenant, body, True, False, None), {name}))
        self._records[name] = {"created": str(moves[0][0]), "errors": lost}
        self._moves[name] = [Move(at_ms, "status", *rest, False) for at_ms, *rest in moves]  # type: ignore[arg-type]

    def evidence(self, *deaths: Death) -> Evidence:
        stored = Stored(self._records, {}, {}, [], {}, 0, 0, {})
        steps = {job_id: [Step(0, 22, move.attempt, 0, 1) for move in mine] for job_id, mine in self._moves.items()}
        return Evidence(self._tickets, stored, self._moves, {}, {}, steps, [], deaths, False)


LOST = '{"type":"worker_lost","attempt":1}'
#: Killed at 10 s, queued again at 13 s, run by the other worker at 18 s.
VICTIM: Moves = [
    (5_000, "queued", 0, None),
    (6_000, "running", 1, DEAD),
    (13_000, "queued", 1, None),
    (18_000, "running", 2, OTHER),
    (18_500, "succeeded", 2, OTHER),
]


def others(run: Run, what: str) -> None:
    match what:
        case "its tenant is at its limit":
            course = [(6_000, "queued", 0, None), (7_000, "running", 1, OTHER), (17_000, "succeeded", 1, OTHER)]
            run.job("large", course, num_outputs=3)
        case "an older job waits":
            run.job(
                "older", [(1_000, "queued", 0, None), (17_000, "running", 1, OTHER), (17_100, "succeeded", 1, OTHER)]
            )
        case "no place is free":
            for n in range(16):
                run.job(f"b{n}", [(100, "queued", 0, None), (200, "running", 1, OTHER), (17_000, "aborted", 1, OTHER)],
                        tenant="blue")  # fmt: skip
        case "a younger job waits":
            run.job(
                "younger", [(9_000, "queued", 0, None), (18_100, "running", 1, OTHER), (18_200, "aborted", 1, OTHER)]
            )


@pytest.mark.parametrize(
    ("what", "unhindered_ms"),
    [
        ("nothing", 8_000),
        ("its tenant is at its limit", 4_000),
        ("an older job waits", 4_000),
        ("no place is free", 4_000),
        ("a younger job waits", 8_000),
    ],
)
def test_a_wait_counts_unless_something_stood_in_the_way(what: str, unhindered_ms: float) -> None:
    run = Run()
    run.job("victim", VICTIM, lost=LOST)
    others(run, what)
    [found] = recoveries(run.evidence(Death(11, 10_000, 19_000)))
    assert (found.job_id, found.requeued_ms, found.restarted_ms) == ("victim", 3_000, 8_000)
    assert found.unhindered_ms == unhindered_ms


def test_what_follows_the_calm_does_not_count() -> None:
    run = Run()
    run.job("victim", VICTIM, lost=LOST)
    [found] = recoveries(run.evidence(Death(11, 10_000, 15_000)))
    assert found.unhindered_ms == 5_000


@pytest.mark.parametrize(("rows", "is_beyond"), [(1, False), (2, True)])
def test_a_turn_beyond_a_limit_is_seen(rows: int, is_beyond: bool) -> None:
    run = Run()
    run.job("one", [(0, "queued", 0, None), (100, "running", 1, DEAD), (900, "succeeded", 1, DEAD)], num_outputs=2)
    run.job("two", [(0, "queued", 0, None), (200, "running", 1, OTHER), (900, "succeeded", 1, OTHER)], num_outputs=rows)
    run.job("next", [(0, "queued", 0, None), (900, "running", 1, OTHER), (950, "succeeded", 1, OTHER)], num_outputs=3)
    assert [job_id for job_id, _ in beyond_limits(run.evidence())] == (["two"] if is_beyond else [])

"""What is known of a run, told job by job: whose it is, how it ended, and the attempts that it had."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from tests.chaos.evidence import Step, Stored
from tests.chaos.processes import Death
from tests.chaos.producers import Ticket
from tests.chaos.receiver import Told
from tests.chaos.witness import Move


@dataclass
class Evidence:
    tickets: Sequence[Ticket]
    stored: Stored
    moves: dict[str, list[Move]]
    ended: dict[str, dict[str, str]]
    leases: dict[str, set[int]]
    steps: dict[str, Sequence[Step]]
    told: Sequence[Told]
    deaths: Sequence[Death]
    unfinished: bool
    by_id: dict[str, Ticket] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Whose job is which: by its id, by the key in Redis, by the answers."""
        for ticket in self.tickets:
            ids, planned = set(ticket.ids), ticket.planned
            known = planned.name if planned.by_id else self.stored.keys.get(planned.scope)
            if known in self.stored.records:
                ids.add(str(known))
            self.by_id |= dict.fromkeys(ids, ticket)

    @property
    def accepted(self) -> list[str]:
        return list(self.by_id)

    def record(self, job_id: str) -> dict[str, str]:
        return dict(self.stored.records.get(job_id, {}))

    def status(self, job_id: str) -> str:
        return self.record(job_id).get("status", "lost")


@dataclass(frozen=True, slots=True)
class Life:
    """An attempt by the store's word: when it was claimed and when it ended, and whether by a lapsed lease."""

    number: int
    began_ms: int
    ended_ms: float
    lapsed: bool
    worker: str | None

    @property
    def pid(self) -> int:
        return int((self.worker or ":0:").split(":")[1])

    @property
    def host(self) -> str:
        return (self.worker or "").split(":")[0]


def lives(evidence: Evidence, job_id: str) -> list[Life]:
    lost = {
        error["attempt"]
        for error in json.loads("[" + evidence.record(job_id).get("errors", "") + "]")
        if error["type"] == "worker_lost"
    }
    return [
        Life(move.attempt, move.at_ms, ended_ms, move.attempt in lost, move.worker)
        for move, ended_ms in _stays(evidence, job_id, "running")
    ]


def waits(evidence: Evidence, job_id: str) -> list[tuple[float, float]]:
    """From when to when it was queued."""
    return [(move.at_ms, ended_ms) for move, ended_ms in _stays(evidence, job_id, "queued")]


def _stays(evidence: Evidence, job_id: str, status: str) -> Iterator[tuple[Move, float]]:
    moves = [move for move in evidence.moves.get(job_id, []) if move.type == "status" and not move.is_wish]
    for move, after in zip_longest(moves, moves[1:]):
        if move.status == status:
            yield move, float("inf") if after is None else after.at_ms

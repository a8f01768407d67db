"""The tenants of a run, and whether turns kept to their limits, as far as the moves of all jobs tell."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.chaos.plan import TENANTS_FILE, PlannedJob
from tests.chaos.story import Evidence, lives

_TABLES: Mapping[str, Mapping[str, Any]] = tomllib.loads(TENANTS_FILE)


def limits_of(planned: PlannedJob) -> dict[str, int]:
    """Of those that the job counts against: rows that may run at a time."""
    tables = {f"tenant {planned.tenant}": planned.tenant}
    if group := planned.body.get("group"):
        tables[f"group {group}"] = "groups"
    most = {name: _TABLES[table].get("max_running_rows") for name, table in tables.items()}
    return {name: rows for name, rows in most.items() if rows is not None}


def moves_of_rows(evidence: Evidence) -> list[tuple[float, int, str, int]]:
    """(ms, rows gained or lost, job, attempt) in order; at one moment those that end go first."""
    found: list[tuple[float, int, str, int]] = []
    for job_id, ticket in evidence.by_id.items():
        rows = ticket.planned.body["num_outputs"]
        for life in lives(evidence, job_id):
            found += [(life.began_ms, rows, job_id, life.number), (life.ended_ms, -rows, job_id, life.number)]
    return sorted(found, key=lambda move: (move[0], move[1]))


def beyond_limits(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Turns that were given to who had no room. What lies in the spool goes home out of turn: it needs no device."""
    running = Counter[str]()
    for _, rows, job_id, attempt in moves_of_rows(evidence):
        planned = evidence.by_id[job_id].planned
        rendered = any(step.attempt == attempt for step in evidence.steps.get(job_id, ()))
        for name, most in limits_of(planned).items():
            if rows > 0 and rendered and running[name] and running[name] + rows > most:
                yield job_id, f"attempt {attempt} began with {running[name]} rows of {name} running, {most} may"
            running[name] += rows


def has_room(running: Mapping[str, int], planned: PlannedJob) -> bool:
    """As the store judges: who has nothing running may always start."""
    rows = planned.body["num_outputs"]
    return all(not running.get(name) or running[name] + rows <= most for name, most in limits_of(planned).items())

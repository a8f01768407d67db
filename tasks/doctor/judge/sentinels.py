"""Whether the sentinels of the URL know one primary, all the same."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.doctor.finding import Finding, fail, ok, warn
from tasks.doctor.probe.sentinels import SentinelAnswer

_CHECK = "redis.sentinels"
_URL = "SAFELIGHT_REDIS_URL"


def judge_sentinels(answers: Sequence[SentinelAnswer], master: str) -> Finding:
    """`master`: the name of the primary."""
    silent = [each for each in answers if each.error is not None]
    ignorant = [each.place for each in answers if each.error is None and each.primary is None]
    primaries = {each.primary: each.place for each in answers if each.primary}
    if ignorant:
        found = f"{', '.join(ignorant)} {_knows(ignorant)} no primary {master}"
        return fail(_CHECK, found, f"correct master_name in {_URL}, or SENTINEL MONITOR {master} there")
    if len(primaries) > 1:
        said = ", ".join(f"{place} says {primary}" for primary, place in primaries.items())
        return fail(_CHECK, f"they do not agree: {said}", f"wait for a failover to end, or SENTINEL RESET {master}")
    if silent:
        why = " ".join(str(silent[0].error).split())[:120] or type(silent[0].error).__name__
        found = f"{len(silent)} of {len(answers)} give no answer: {', '.join(each.place for each in silent)} ({why})"
        remedy = f"start them, or correct hosts and sentinel_password in {_URL}"
        return warn(_CHECK, found, remedy) if primaries else fail(_CHECK, found, remedy)
    if len(answers) == 1:
        found = f"one sentinel is named: while {answers[0].place} is away nobody finds the primary"
        return warn(_CHECK, found, f"name the others too, separated by ; in {_URL}")
    return ok(_CHECK, f"{len(answers)} agree that {master} is {next(iter(primaries))}")


def _knows(places: Sequence[str]) -> str:
    return "knows" if len(places) == 1 else "know"

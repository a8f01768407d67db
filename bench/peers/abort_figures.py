"""What a trial of an abort showed, and how it is said. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """A denoise step that ended, and the ids of its rows."""

    at_s: float
    ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Trial:
    """`freed_ms` from the call until the place could work for others; None: it never left before its end.

    `steps`: how many steps the row still took after the call. `died`: how many others lost their work with it.
    """

    system: str
    how: str
    depth: int
    freed_ms: float | None
    steps: int
    died: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def parse_steps(text: str) -> list[Step]:
    """Of a step log; a line that is still being written is left out."""
    lines = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
    return [Step(float(at_s), frozenset(ids)) for at_s, *ids in lines]


def judge(
    steps: Sequence[Step], target: str, called_s: float, num_steps: int, name: tuple[str, str, int]
) -> Trial | None:
    """The trial as a step log shows it, or None while it does not yet.

    The row is free when others step without it: a killed process frees it only when the next one has its model loaded.
    """
    own = [step for step in steps if target in step.ids]
    after = sum(step.at_s > called_s for step in own)
    if len(own) >= num_steps:
        return Trial(*name, None, after)
    last_s = max(called_s, own[-1].at_s)
    later = [step for step in steps if step.at_s > last_s and target not in step.ids]
    if not later:
        return None
    mates = frozenset().union(*(step.ids for step in own)) - {target}
    counts = {mate: sum(mate in step.ids for step in steps if step.at_s <= last_s) for mate in mates}
    restarted = sum(count < num_steps and not any(mate in step.ids for step in later) for mate, count in counts.items())
    return Trial(*name, 1000 * (later[0].at_s - called_s), after, restarted)


def outcome(trials: Sequence[Trial]) -> str:
    """Median and worst of the trials of one system at one depth."""
    if not trials:
        return "not tried"
    freed = [trial.freed_ms for trial in trials if trial.freed_ms is not None]
    steps = statistics.median(trial.steps for trial in trials)
    if not freed:
        return f"never: the row runs to its end ({steps:.0f} steps more)"
    died = max(trial.died for trial in trials)
    words = f"{statistics.median(freed):.0f} ms (worst {max(freed):.0f}), {steps:.0f} steps"
    if died:
        words += f"; up to {died} batch-mates lose their work"
    if len(freed) < len(trials):
        words += f"; in {len(trials) - len(freed)} of {len(trials)} never"
    return words

"""When a job will be done, from the step times that live workers measure. Pure; every answer may be "nobody knows".

Work is counted in row-steps: one denoising step of one output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast one worker serves one model, as its last beat told."""

    max_rows: int
    #: Seconds of a step of a batch, and the rows in it, both lately and on average; None: none has run yet.
    step_s: float | None = None
    rows: float = 1.0
    #: Rows that it has in hand, and the row-steps that they still need.
    busy_rows: int = 0
    left: int = 0
    #: What an attempt takes besides its steps: inputs, texts, decoding, upload.
    rest_s: float = 0.0

    def with_job(self, rows: int, work: int) -> Speed:
        """The same with one more job in hand."""
        return replace(self, busy_rows=self.busy_rows + rows, left=self.left + work)

    def encode(self) -> str:
        step_us = -1 if self.step_s is None else round(self.step_s * 1e6)
        parts = (self.max_rows, step_us, self.busy_rows, self.left, f"{self.rows:.2f}", f"{self.rest_s:.3f}")
        return " ".join(map(str, parts))


@dataclass(frozen=True, slots=True)
class Load:
    """What stands before a queued job: jobs ahead of it, all jobs of its queue, and the row-steps of all of those."""

    position: int
    queued: int
    work: int

    @property
    def ahead(self) -> float:
        """Row-steps of the jobs ahead, taking each for an average one."""
        return self.work * self.position / self.queued if self.queued else 0.0


def speeds_of(info: Mapping[str, Any]) -> dict[str, Speed]:
    """By model, from what a worker says of itself; one that does not take jobs has none."""
    if info.get("state") != "ready":
        return {}
    told = {name: model.get("speed") for name, model in info.get("models", {}).items()}
    return {name: Speed(**speed) for name, speed in told.items() if speed is not None}


def decode_speeds(texts: Sequence[str], now_ms: int) -> tuple[Speed, ...]:
    """Those that are still alive, of what `Speed.encode` made with the time of its end before it."""
    return tuple(_decoded(parts) for parts in map(str.split, texts) if int(parts[0]) > now_ms)


def _decoded(parts: Sequence[str]) -> Speed:
    _, max_rows, step_us, busy_rows, left, rows, rest_s = parts
    return Speed(
        max_rows=int(max_rows),
        step_s=None if int(step_us) < 0 else int(step_us) / 1e6,
        rows=float(rows),
        busy_rows=int(busy_rows),
        left=int(left),
        rest_s=float(rest_s),
    )


def own_s(rows: int, num_steps: int, speeds: Sequence[Speed]) -> float | None:
    """How long the job itself takes once it runs; None before any step was measured."""
    measured = [speed for speed in speeds if speed.step_s is not None]
    if not measured:
        return None
    step_s = sum(speed.step_s or 0.0 for speed in measured) / len(measured)
    rounds = math.ceil(rows / max(speed.max_rows for speed in speeds))
    return rounds * num_steps * step_s + _rest_s(measured)


def queued_eta_s(load: Load, rows: int, num_steps: int, speeds: Sequence[Speed]) -> float | None:
    """Seconds until the result of a queued job. None: nobody serves its model, or nobody has measured a step yet.

    Its own steps while rows are free; else no less than it takes to work off what is in hand and ahead, and itself.
    """
    own = own_s(rows, num_steps, speeds)
    if own is None or load.position < sum(max(0, speed.max_rows - speed.busy_rows) for speed in speeds):
        return own
    work = sum(speed.left for speed in speeds) + load.ahead + rows * num_steps
    return max(own, _work_s(work, speeds))


def running_eta_s(num_steps: float, before: float, speed: Speed) -> float | None:
    """Of a job with `num_steps` to go, when `before` row-steps, its own among them, are done before it is.

    A worker lets those go first that have least left, so that a job's pace so far tells nothing.
    """
    return None if speed.step_s is None else max(num_steps * speed.step_s + speed.rest_s, _work_s(before, [speed]))


def _work_s(work: float, speeds: Sequence[Speed]) -> float:
    """How long so many row-steps take all of these workers, and what is beside the steps of the last job."""
    measured = [speed for speed in speeds if speed.step_s is not None]
    per_worker = sum(speed.rows / max(speed.step_s or 0.0, 1e-9) for speed in measured) / len(measured)
    return work / (per_worker * len(speeds)) + _rest_s(measured)


def _rest_s(measured: Sequence[Speed]) -> float:
    return sum(speed.rest_s for speed in measured) / len(measured)

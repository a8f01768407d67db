"""Rows served together as the engine does it in step mode, but without its thread: one group a turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine import DiffusionRequest
from engine.adapter import Output, RowCall, StepHook
from engine.adapters.stepwise import StepPipeline
from engine.batch import Batch
from engine.request import Row
from engine.result import Stage
from tests.contract.families import Family

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Turn:
    """One forward, and the requests that shared it."""

    stage: Stage
    shared: tuple[str, ...]


def one_row(adapter: StepPipeline, wanted: DiffusionRequest) -> Batch:
    return Batch(adapter.batch_key(wanted), (Row(wanted, 0),))


def run_alone(adapter: StepPipeline, wanted: DiffusionRequest) -> None:
    """One pipeline call of its own, as in request mode."""
    (outcome,) = adapter.run(one_row(adapter, wanted), lambda *_: None)
    assert isinstance(outcome, Output), outcome


def serve(adapter: StepPipeline, wanted: Sequence[DiffusionRequest], *, alone: bool = False) -> list[Turn]:
    """Longest unserved first, until all have an output. `alone`: held, but never merged."""
    calls: dict[str, RowCall] = {
        one.request_id: adapter.open(one_row(adapter, one), lambda *_: None, alone=alone) for one in wanted
    }
    served = dict.fromkeys(calls, 0)
    turns: list[Turn] = []
    while waiting := [name for name, call in calls.items() if call.outcome is None]:
        groups: dict[Any, list[str]] = {}
        for name in waiting:
            groups.setdefault(calls[name].key, []).append(name)
        group = min(groups.values(), key=lambda group: min(served[name] for name in group))
        turns.append(Turn(calls[group[0]].stage, tuple(group)))
        served.update(dict.fromkeys(group, len(turns)))
        adapter.advance([calls[name] for name in group])
    assert all(isinstance(call.outcome, Output) for call in calls.values()), [c.outcome for c in calls.values()]
    return turns


def denoised(turns: Sequence[Turn]) -> list[int]:
    """How many rows shared each forward of the denoiser."""
    return [len(turn.shared) for turn in turns if turn.stage == "denoising"]


def difference(family: Family, one: Floats, other: Floats) -> float:
    """The largest of two rows as they were before rounding: in units of the range 0 to 1, or of the loudest sample."""
    assert one.shape == other.shape
    scale = max(float(np.abs(one).max()), 1e-12) if "duration_s" in family.params else 1.0
    return float(np.abs(one - other).max()) / scale


def open_gang(adapter: StepPipeline, wanted: Sequence[DiffusionRequest]) -> Sequence[RowCall]:
    """One pipeline call for requests that are equal in what a call has one of."""
    (key,) = {adapter.batch_key(one) for one in wanted}
    hooks: list[StepHook] = [lambda *_: None] * len(wanted)
    return adapter.open_gang(Batch(key, tuple(Row(one, 0) for one in wanted)), hooks)


def serve_calls(adapter: StepPipeline, calls: Sequence[RowCall], at_most: Sequence[int] = (8,)) -> list[int]:
    """Longest unserved first, in turns of at most so many; how many rows shared each denoise forward."""
    served = dict.fromkeys(calls, -1)
    forwards: list[int] = []
    turn = 0
    while ready := [call for call in calls if call.outcome is None and not call.waits]:
        first = min(ready, key=lambda call: (call.stage == "denoising", served[call]))
        group = [call for call in ready if call.key == first.key]
        if first.stage == "denoising":
            group = group[: at_most[turn % len(at_most)]]
            forwards.append(len(group))
            turn += 1
        served |= dict.fromkeys(group, turn)
        adapter.advance(group)
    return forwards

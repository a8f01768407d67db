"""How a node does with a model, and when an attempt will be done that waits for a place on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine import DiffusionEngine
from tasks.eta import Load, Speed, own_s, wait_s
from tasks.job_codec import work_of
from worker.attempt import Attempt, Attempts
from worker.figures import NodeFigures


class Outlook:
    """`engines` are those that are loaded."""

    def __init__(self, attempts: Attempts, engines: Mapping[str, DiffusionEngine], figures: NodeFigures) -> None:
        self._attempts = attempts
        self._engines = engines
        self._figures = figures

    def speed(self, model: str) -> Speed | None:
        """With all that the node has in hand of the model; None while the model is not loaded."""
        return self._speed(model, self._in_hand(model))

    def eta_s(self, attempt: Attempt) -> float | None:
        """Of an attempt that no device has begun with. None: no step was measured yet, or its model is not loaded."""
        model = attempt.job.request.model or ""
        first = [other for other in self._in_hand(model) if other is not attempt and _turn(other) < _turn(attempt)]
        waiting = [other for other in first if not other.started]
        speed = self._speed(model, [other for other in first if other.started])
        if speed is None:
            return None
        load = Load(len(waiting), len(waiting), round(_work(waiting)))
        request = attempt.job.request
        own, wait = own_s(request.num_outputs, work_of(request) // request.num_outputs, [speed]), wait_s(load, [speed])
        return None if own is None or wait is None else own + wait

    def _speed(self, model: str, busy: Sequence[Attempt]) -> Speed | None:
        engine = self._engines.get(model)
        if engine is None:
            return None
        stats = engine.stats()
        return Speed(
            max_rows=stats.max_rows,
            step_s=None if stats.step_ms is None else stats.step_ms / 1000,
            rows=stats.step_rows,
            busy_rows=sum(attempt.job.request.num_outputs for attempt in busy),
            left=round(_work(busy)),
            rest_s=self._figures.rest_s(model),
        )

    def _in_hand(self, model: str) -> list[Attempt]:
        """Those with which the device is not done."""
        live = self._attempts.live()
        return [one for one in live if one.job.request.model == model and one.seal is None and not one.is_set_aside]


def _turn(attempt: Attempt) -> tuple[bool, int, float]:
    """Who is under way, then by priority, then as they came."""
    return not attempt.started, -attempt.job.request.priority, attempt.claimed_at


def _work(attempts: Sequence[Attempt]) -> float:
    return sum(attempt.work_left for attempt in attempts)

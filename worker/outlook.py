"""How a node does with a model, and when an attempt of it will be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine import DiffusionEngine
from tasks.eta import Load, Speed, queued_eta_s, running_eta_s
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
        """Until its result. None: no step was measured yet, or its model is not loaded."""
        in_hand = self._in_hand(attempt.job.request.model or "")
        return self._running_s(attempt, in_hand) if attempt.started else self._waiting_s(attempt, in_hand)

    def _running_s(self, attempt: Attempt, in_hand: Sequence[Attempt]) -> float | None:
        """The engine serves those first that have least left."""
        speed = self._speed(attempt.job.request.model or "", ())
        first = [one for one in in_hand if one.started and one is not attempt and one.steps_left <= attempt.steps_left]
        if speed is None:
            return None
        return running_eta_s(attempt.steps_left, _work([*first, attempt]), speed)

    def _waiting_s(self, attempt: Attempt, in_hand: Sequence[Attempt]) -> float | None:
        first = [other for other in in_hand if other is not attempt and _turn(other) < _turn(attempt)]
        waiting = [other for other in first if not other.started]
        speed = self._speed(attempt.job.request.model or "", [other for other in first if other.started])
        if speed is None:
            return None
        load = Load(len(waiting), len(waiting), round(_work(waiting)))
        return queued_eta_s(load, attempt.job.request.num_outputs, round(attempt.steps_left), [speed])

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

"""In a rank: questions that its device thread answers, one after the other, while commands go on being read."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from ..core import DiffusionEngine
from .messages import Answer, Ask


class Answers:
    """A thread of its own puts each question to the engine, in order, and says what came of it."""

    def __init__(self, engine: DiffusionEngine, say: Callable[[Answer], None]) -> None:
        self._engine = engine
        self._say = say
        self._asks: queue.SimpleQueue[tuple[Ask, float | None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="safelight-answers", daemon=True).start()

    def put(self, ask: Ask) -> None:
        """Answer it when those before it are answered; its time runs from now."""
        due_s = None if ask.timeout_s is None else time.monotonic() + ask.timeout_s
        self._asks.put((ask, due_s))

    def _run(self) -> None:
        while True:
            ask, due_s = self._asks.get()
            self._answer(ask, None if due_s is None else max(0.0, due_s - time.monotonic()))

    def _answer(self, ask: Ask, timeout_s: float | None) -> None:
        try:
            self._say(Answer(ask.number, self._value(ask, timeout_s)))
        except BaseException as error:  # whatever a method raises is its caller's
            self._say(Answer(ask.number, error=error))

    def _value(self, ask: Ask, timeout_s: float | None) -> object:
        match ask.word:
            case "method":
                return self._engine.collective_rpc(ask.name, timeout_s, ask.args, ask.kwargs)
            case "export":
                return self._engine.export(ask.name, timeout_s)
            case "pause":
                self._engine.pause(timeout_s)
            case "resume":
                self._engine.resume(timeout_s)
        return None

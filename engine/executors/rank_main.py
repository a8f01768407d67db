"""What runs in a rank's process: one in-process engine, whole, that does as its socket says and tells all that happens.

It ends with its parent, whatever way that goes.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from contextlib import suppress

from ..core import Arrival, DiffusionEngine
from ..errors import EngineClosed, QueueFull
from ..request import DiffusionRequest
from ..result import Event, Failed, is_terminal
from ..stream import OutputStream
from .answers import Answers
from .channel import Channel
from .child import from_parent
from .messages import Ask, Beat, Begin, Broken, Command, Drop, Leave, Logged, Ready, Report, Said, Take, Told

#: After the last word: time for it to be sent.
_FLUSH_S = 5.0


class Mouth:
    """Everything that this incarnation says."""

    def __init__(self, channel: Channel, epoch: int) -> None:
        self._channel = channel
        self._epoch = epoch

    def say(self, report: Report) -> None:
        """Raises TypeError for what cannot cross."""
        self._channel.post(Said(self._epoch, report))


class ToldStream(OutputStream):
    """A stream that nobody reads here: each event goes to the parent as it comes."""

    def __init__(self, ticket: str, mouth: Mouth, beats: Beats) -> None:
        super().__init__(ticket, lambda: None)
        self._mouth = mouth
        self._beats = beats
        self._ended = False

    def put(self, event: Event) -> None:
        """A failure that is retryable is the engine's own end, and what becomes of its requests the parent's to say."""
        if self._ended:
            return
        self._ended = is_terminal(event)
        if isinstance(event, Failed) and event.retryable:
            self._mouth.say(Broken(event.message, loading=False))
            return
        self._mouth.say(Told(self.request_id, event))
        if self._ended:
            self._beats.hurry()


class Beats:
    """Signs of life, from the first moment on, whatever the device does."""

    def __init__(self, mouth: Mouth, beat_s: float) -> None:
        self._mouth = mouth
        self._beat_s = beat_s
        self._due = threading.Event()
        self.engine: DiffusionEngine | None = None
        threading.Thread(target=self._run, name="safelight-beats", daemon=True).start()

    def hurry(self) -> None:
        """The next one at once: its figures have changed."""
        self._due.set()

    def _run(self) -> None:
        while True:
            self._mouth.say(_figures(self.engine))
            self._due.wait(self._beat_s)
            self._due.clear()


def _figures(engine: DiffusionEngine | None) -> Beat:
    if engine is None:
        return Beat()
    groups = tuple(type(group)(group.rows, {**group.key, "extra": None}) for group in engine.running_groups())
    return Beat(engine.stats(), groups, engine.device_memory())


class LogWire(logging.Handler):
    """The log of this process, for the parent's."""

    def __init__(self, mouth: Mouth) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))
        self._mouth = mouth

    def emit(self, record: logging.LogRecord) -> None:
        """One line, its traceback included."""
        self._mouth.say(Logged(record.name, record.levelno, self.format(record)))


class RankMain:
    """One incarnation, from its first command to its end."""

    def __init__(self, channel: Channel, begin: Begin, commands: queue.SimpleQueue[Command]) -> None:
        self._channel = channel
        self._begin = begin
        self._commands = commands
        self._mouth = Mouth(channel, begin.epoch)
        self._beats = Beats(self._mouth, begin.beat_s)

    def run(self) -> int:
        """The exit code: 0 when it was told to leave, 1 when the engine is of no use."""
        logging.basicConfig(level=self._begin.log_level, handlers=[LogWire(self._mouth)])
        try:
            engine = DiffusionEngine.make_engine(self._begin.config)
        except Exception as error:
            self._mouth.say(Broken(str(error) or type(error).__name__, loading=True))
            self._channel.flush(_FLUSH_S)
            return 1
        self._beats.engine = engine
        self._mouth.say(Ready(engine.capabilities, engine.checkpoint_model))
        self._beats.hurry()
        self._serve(engine, Answers(engine, self._mouth.say))
        return 0

    def _serve(self, engine: DiffusionEngine, answers: Answers) -> None:
        while True:
            match self._commands.get():
                case Take(requests):
                    self._take(engine, requests)
                case Drop(tickets):
                    engine.abort(tickets)
                case Ask() as ask:
                    answers.put(ask)
                case Leave():
                    engine.close()
                    self._channel.flush(_FLUSH_S)
                    return
                case Begin():
                    raise AssertionError("a rank begins once")

    def _take(self, engine: DiffusionEngine, requests: tuple[tuple[DiffusionRequest, float], ...]) -> None:
        arrivals = tuple(
            Arrival(request, ToldStream(request.request_id, self._mouth, self._beats), age_s)
            for request, age_s in requests
        )
        try:
            engine.submit_wave(arrivals)
        except (EngineClosed, QueueFull, ValueError) as error:
            self._mouth.say(Broken(str(error), loading=False))


def _read(channel: Channel, commands: queue.SimpleQueue[Command]) -> None:
    """Ends the process when the parent's end of the socket is gone."""
    with suppress(EOFError):
        while True:
            commands.put(channel.receive())
    os._exit(1)


def main(argv: list[str]) -> int:
    """Be the rank that the parent wants, by the arguments of `spawn.spawned`."""
    channel = from_parent(argv)
    begin = channel.receive()
    assert isinstance(begin, Begin)
    commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(channel, commands), name="safelight-commands", daemon=True).start()
    return RankMain(channel, begin, commands).run()


if __name__ == "__main__":
    code = main(sys.argv[1:])
    os._exit(code)  # a model that is torn down with the interpreter takes seconds

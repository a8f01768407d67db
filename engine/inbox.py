"""The one way into the device thread: commands, in order, from any thread."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from .errors import EngineClosed
from .ledger import Account
from .request import DiffusionRequest


@dataclass(frozen=True, slots=True)
class Submit:
    """Queue a request whose stream is open already."""

    request: DiffusionRequest
    submitted_s: float


@dataclass(frozen=True, slots=True)
class Wave:
    """Queue several, which the scheduler then sees together."""

    submits: tuple[Submit, ...]


@dataclass(frozen=True, slots=True)
class Abort:
    """End these very requests, as far as they are open: by identity, since an id may be in use again by then."""

    requests: tuple[DiffusionRequest, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Run `function` between two batches, unless its future was cancelled by then."""

    function: Callable[[], object]
    future: Future[object] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class Heard:
    """A rank in a process of its own said something, or is no more. Only its executor knows what it means."""

    rank: int
    what: object


@dataclass(frozen=True, slots=True)
class Spoiled:
    """End a request, one of whose finished rows came to nothing after all."""

    account: Account
    error: Exception


@dataclass(frozen=True, slots=True)
class Stop:
    """The last command ever."""


Command = Submit | Wave | Abort | Call | Heard | Spoiled | Stop


class Inbox:
    """A queue of commands that can be shut: `close` makes Stop the last command, for good."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed: EngineClosed | None = None

    def put(self, command: Command) -> None:
        """Raises EngineClosed (or EngineDead) once closed."""
        with self._lock:
            self.require_open()
            self._queue.put(command)

    def require_open(self) -> None:
        if self._closed is not None:
            raise type(self._closed)(*self._closed.args)

    def close(self, reason: EngineClosed) -> None:
        """Refuse what comes from now on, with `reason`. A later reason replaces an earlier one."""
        with self._lock:
            if self._closed is None:
                self._queue.put(Stop())
            self._closed = reason

    def get(self, timeout_s: float | None) -> Command | None:
        """The next command; None when none came in time."""
        try:
            return self._queue.get(timeout=None if timeout_s is None else max(0.0, timeout_s))
        except queue.Empty:
            return None

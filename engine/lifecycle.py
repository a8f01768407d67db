"""Where an engine stands, and the only moves there are."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum

from .adapter import Capabilities
from .errors import EngineClosed


class State(Enum):
    #: the device thread resolves, loads and warms up the model
    LOADING = "loading"
    #: serving
    RUNNING = "running"
    #: serving calls and aborts; requests wait
    PAUSED = "paused"
    #: no more commands; the device thread ends its batch and tidies up
    CLOSING = "closing"
    #: the device thread has ended on its own or somebody's wish
    CLOSED = "closed"
    #: the device thread has ended on an error that it could not contain
    DEAD = "dead"


MOVES: dict[State, frozenset[State]] = {
    State.LOADING: frozenset({State.RUNNING, State.CLOSING, State.DEAD}),
    State.RUNNING: frozenset({State.PAUSED, State.CLOSING, State.DEAD}),
    State.PAUSED: frozenset({State.RUNNING, State.CLOSING, State.DEAD}),
    State.CLOSING: frozenset({State.CLOSED, State.DEAD}),
    State.CLOSED: frozenset(),
    State.DEAD: frozenset(),
}


class Lifecycle:
    """The current state. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = State.LOADING

    @property
    def state(self) -> State:
        return self._state

    def move(self, to: State) -> bool:
        """Go to `to` and say True; stay and say False if there is no such move from here."""
        with self._lock:
            allowed = to in MOVES[self._state]
            if allowed:
                self._state = to
            return allowed

    def live(
        self,
        ready: Future[Capabilities],
        load: Callable[[], Capabilities | None],
        serve: Callable[[], None],
        tear_down: Callable[[BaseException | None], None],
    ) -> None:
        """The whole life of an engine's thread. `load` gives None if the engine was closed meanwhile.

        `tear_down` hears what it ended of. `ready` gets the capabilities, or the error that kept it from loading.
        """
        cause: BaseException | None = None
        try:
            capabilities = load()
            if capabilities is not None and self.move(State.RUNNING):
                ready.set_result(capabilities)
                serve()
        except BaseException as error:
            cause = error
        tear_down(cause)
        if not ready.done():
            ready.set_exception(cause or EngineClosed("the engine was closed while it loaded"))

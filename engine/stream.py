"""A request's events, from the device thread to whoever listens: a plain `for`, an `async for`, or `result()`."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from types import TracebackType

from .result import Event, Progress, Terminal, is_terminal


class OutputStream:
    """Ends after one terminal event. Closing it, or leaving an iterator early, aborts the request.

    One consumer at a time. Nothing here is bound to an event loop: the async side uses the loop that iterates.
    """

    def __init__(self, request_id: str, on_close: Callable[[], None]) -> None:
        self.request_id = request_id
        self._on_close = on_close
        self._events: deque[Event] = deque()
        self._terminal: Terminal | None = None
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._num_waiting = 0
        self._sleepers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._is_thin = False
        #: The newest progress, once `thin_out` was called.
        self.latest: Progress | None = None

    def thin_out(self) -> None:
        """From now on progress is an event where a stage begins; between those `latest` tells, and nobody is woken."""
        self._is_thin = True

    def put(self, event: Event) -> None:
        """Hand over an event, from any thread; ignored after the terminal one."""
        with self._lock:  # not through the condition, which is slower: this happens at every step of every row
            if self._terminal is not None or (self._is_thin and self._is_same_stage(event)):
                return
            self._events.append(event)
            if is_terminal(event):
                self._terminal = event  # type: ignore[assignment]
            if self._num_waiting:
                self._changed.notify_all()
            if not self._sleepers:
                return
            sleepers, self._sleepers = self._sleepers, []
        for loop, future in sleepers:
            _wake(loop, future)

    def _is_same_stage(self, event: Event) -> bool:
        if not isinstance(event, Progress):
            return False
        known, self.latest = self.latest, event
        return known is not None and known.stage == event.stage

    @property
    def done(self) -> bool:
        """Whether the terminal event has been put, read or not."""
        return self._terminal is not None

    def result(self, timeout_s: float | None = None) -> Terminal:
        """Wait for the terminal event, passing over the others. Raises TimeoutError; the request then goes on."""
        with self._lock:
            if not self._waited(lambda: self.done, timeout_s):
                raise TimeoutError(f"request {self.request_id} is not done after {timeout_s} s")
        assert self._terminal is not None
        return self._terminal

    def get(self, timeout_s: float | None = None) -> Event | None:
        """The next event, None after the terminal one has been read. Raises TimeoutError; the request then goes on."""
        with self._lock:
            if not self._waited(lambda: bool(self._events) or self.done, timeout_s):
                raise TimeoutError(f"no event of request {self.request_id} in {timeout_s} s")
            return self._events.popleft() if self._events else None

    def _waited(self, is_there: Callable[[], bool], timeout_s: float | None) -> bool:
        """With the lock. What `is_there` says at the end."""
        self._num_waiting += 1
        try:
            return self._changed.wait_for(is_there, timeout_s)
        finally:
            self._num_waiting -= 1

    def close(self) -> None:
        """Abort the request unless it is done. Idempotent, never blocks."""
        if not self.done:
            self._on_close()

    def __iter__(self) -> Iterator[Event]:
        try:
            while (event := self.get()) is not None:
                yield event
        finally:
            self.close()

    async def __aiter__(self) -> AsyncIterator[Event]:
        try:
            while True:
                await self._arrival()
                event = self.get(timeout_s=0)
                if event is None:
                    return
                yield event
        finally:
            self.close()

    async def _arrival(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._events or self.done:
                return
            future: asyncio.Future[None] = loop.create_future()
            self._sleepers.append((loop, future))
        await future

    def __enter__(self) -> "OutputStream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _wake(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    with suppress(RuntimeError):  # a loop that has been closed has no consumer left
        loop.call_soon_threadsafe(resolve)

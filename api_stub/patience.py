"""How long a connection may take to say what it wants. uvicorn itself waits for ever for the head of a request."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose next request is not there, whole head and all, in `HEAD_S`.

    The time runs from the connection, or from the first byte after an answer; in between, uvicorn's own limit for
    connections that are kept alive holds. Bodies have a bound of their own, in `body.py`.
    """

    head_s = HEAD_S
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self._serves():
            self._rest()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_s, self._give_up)

    def _serves(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _rest(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self._serves():
            self.transport.close()

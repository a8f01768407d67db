"""One end of the socket between an engine and a rank: messages in, messages out, and nobody waits to say something."""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from .messages import WIRE
from .wire import Buffer

_LENGTH = struct.Struct("<Q")
#: Parts that together are smaller are joined: one system call instead of several.
_SMALL_BYTES = 65_536


class Channel:
    """Thread-safe, but for `receive`, which one thread calls. A thread of its own sends."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._unsent: queue.SimpleQueue[list[Buffer] | None] = queue.SimpleQueue()
        self._sender = threading.Thread(target=self._send_all, name="safelight-channel", daemon=True)
        self._sender.start()

    def post(self, message: object) -> None:
        """Send it soon; lost if the other end is gone. Raises TypeError for what cannot cross."""
        self._unsent.put(WIRE.pack(message))

    def receive(self) -> Any:
        """The next message. Raises EOFError once the other end is gone."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        head = bytes(self._read(length))
        return WIRE.unpack(head, [self._read(size) for size in WIRE.sizes(head)])

    def flush(self, timeout_s: float) -> None:
        """Send what was posted, then nothing more."""
        self._unsent.put(None)
        self._sender.join(timeout_s)

    def close(self) -> None:
        """The other end reads its end of file; whoever waits here is let go. Idempotent."""
        self._unsent.put(None)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            try:
                count = self._socket.recv_into(view)
            except OSError as error:
                raise EOFError(str(error)) from error
            if count == 0:
                raise EOFError("the other end is gone")
            view = view[count:]
        return data

    def _send_all(self) -> None:
        with suppress(OSError):
            while (parts := self._unsent.get()) is not None:
                self._send(parts)

    def _send(self, parts: Sequence[Buffer]) -> None:
        parts = [_LENGTH.pack(memoryview(parts[0]).nbytes), *parts]
        if sum(memoryview(part).nbytes for part in parts) < _SMALL_BYTES:
            parts = [b"".join(parts)]
        for part in parts:
            self._socket.sendall(part)

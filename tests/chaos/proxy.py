"""A TCP proxy that does harm on demand: it knows a port to forward to and a mood, and of HTTP only how to say 500."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any, Literal

#: pass: forward. cut: reset what is open, then forward. refuse: reset at once whatever connects.
#: silent: what is open, or opens now, hears nothing any more, and its bytes go nowhere, until the client gives up.
#: deaf: requests go through and their replies are lost; the connection is reset half a second later.
#: late: every piece waits `seconds`. slow: `SLOW_BYTES_PER_S`. http_500: an answer of its own, nothing is forwarded.
#: http_500_after: the request goes through, and 500 is the answer.
Mood = Literal["pass", "cut", "refuse", "silent", "deaf", "late", "slow", "http_500", "http_500_after"]

SLOW_BYTES_PER_S = 8_000
DEAF_S = 0.5
_PIECE = 65_536
_500 = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Connection:
    """One client, and the server's side of it."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = reader, writer
        self._upstream: asyncio.StreamWriter | None = None
        #: Half-open for good: healing the proxy does not bring it back.
        self.is_silent = proxy.mood == "silent"
        self.is_deaf = False

    async def run(self) -> None:
        reader, writer = self._client
        tasks: list[asyncio.Task[None]] = []
        try:
            server, self._upstream = await asyncio.open_connection("127.0.0.1", self._proxy.target)
            tasks = [
                asyncio.create_task(self._requests(reader, self._upstream)),
                asyncio.create_task(self._replies(server, writer)),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass
        finally:
            for task in tasks:
                task.cancel()
            self.reset()

    def reset(self) -> None:
        for writer in (self._client[1], self._upstream):
            if writer is not None:
                _reset(writer)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await _read(reader):
            if self.is_silent:
                continue
            if self._proxy.mood == "http_500":
                await self._say_500()
                return
            await self._send(writer, data)

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await _read(reader):
            if self.is_silent:
                continue
            if self._proxy.mood == "deaf" or self.is_deaf:
                await asyncio.sleep(DEAF_S)
                return
            if self._proxy.mood == "http_500_after":
                await self._say_500()
                return
            await self._send(writer, data)

    async def _say_500(self) -> None:
        writer = self._client[1]
        with contextlib.suppress(OSError):
            writer.write(_500)
            await writer.drain()
            writer.write_eof()
            await asyncio.sleep(0.2)

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        mood = self._proxy.mood
        if mood == "late":
            await asyncio.sleep(self._proxy.seconds)
        pieces = [data] if mood != "slow" else [data[at : at + 1000] for at in range(0, len(data), 1000)]
        for piece in pieces:
            if self._proxy.mood == "slow":
                await asyncio.sleep(len(piece) / SLOW_BYTES_PER_S)
            if self.is_silent:
                return
            try:
                writer.write(piece)
                await writer.drain()
            except OSError:
                return


class Proxy:
    """Listens on `port` and forwards to `target`, in its present mood. Its methods are for the loop's thread."""

    def __init__(self, name: str, target: int) -> None:
        self.name = name
        self.target = target
        self.port = 0
        self.mood: Mood = "pass"
        self.seconds = 0.0
        self._open: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mood == "refuse":
            _reset(writer)
            return
        connection = Connection(self, reader, writer)
        self._open.add(connection)
        try:
            await connection.run()
        finally:
            self._open.discard(connection)

    async def set(self, mood: Mood, seconds: float = 0.0) -> None:
        self.mood, self.seconds = ("pass" if mood == "cut" else mood), seconds
        for connection in list(self._open):
            if mood in ("cut", "refuse"):
                connection.reset()
            connection.is_silent = connection.is_silent or mood == "silent"
            connection.is_deaf = mood == "deaf"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._open):
            connection.reset()


class Proxies:
    """Any number of proxies on one event loop in one thread; the methods may be called from any other."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._all: dict[str, Proxy] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()

    def add(self, name: str, target: int) -> int:
        """The port of a new proxy in front of `target`."""
        proxy = self._all[name] = Proxy(name, target)
        self._do(proxy.start())
        return proxy.port

    def set(self, name: str, mood: Mood, seconds: float = 0.0) -> None:
        self._do(self._all[name].set(mood, seconds))

    def heal(self) -> None:
        for name in self._all:
            self.set(name, "pass")

    def stop(self) -> None:
        for proxy in self._all.values():
            self._do(proxy.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _do(self, call: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(call, self._loop).result(10)


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(_PIECE)
    except OSError:
        return b""


def _reset(writer: asyncio.StreamWriter) -> None:
    """RST instead of FIN: the peer learns of it at once, and as an error."""
    with contextlib.suppress(OSError, AttributeError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()

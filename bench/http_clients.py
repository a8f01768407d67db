"""A thousand HTTP clients in one process: plain sockets under asyncio, so that they cost less than what they ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence


class Connection:
    """One connection that is kept alive."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    def close(self) -> None:
        self._writer.close()

    def ask(self, path: str) -> None:
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())

    async def answer(self) -> int:
        """Bytes of the body of a 200 that tells its length."""
        length = content_length(await self._reader.readuntil(b"\r\n\r\n"))
        return len(await self._reader.readexactly(length))

    async def stream(self, on_event: Callable[[str], object]) -> None:
        """The ids of events of a stream, until it ends."""
        await self._reader.readuntil(b"\r\n\r\n")
        while line := await self._reader.readline():
            if line.startswith(b"id: "):
                on_event(line[4:].strip().decode())


def content_length(head: bytes) -> int:
    """Of an answer that is well. Raises ValueError."""
    lines = head.decode("latin-1").split("\r\n")
    if " 200 " not in lines[0]:
        raise ValueError(lines[0])
    [length] = [line.split(":")[1] for line in lines if line.lower().startswith("content-length:")]
    return int(length)


async def opened(port: int, number: int) -> list[Connection]:
    """That many, some at a time."""
    found = [Connection(port) for _ in range(number)]
    for first in range(0, number, 100):
        await asyncio.gather(*(one.open() for one in found[first : first + 100]))
    return found


async def polling(
    port: int,
    clients: int,
    paths: Sequence[str],
    every_s: float,
    seconds: float,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> list[float]:
    """Seconds that each poll took; every client asks once in `every_s`, and they spread over it."""
    taken: list[float] = []
    connections = await opened(port, clients)
    ends = time.monotonic() + seconds

    async def poll(number: int) -> None:
        await sleep(every_s * number / clients)
        while (began := time.monotonic()) < ends:
            connections[number].ask(paths[number % len(paths)])
            await connections[number].answer()
            taken.append(time.monotonic() - began)
            await sleep(max(0.0, every_s - taken[-1]))

    await asyncio.gather(*map(poll, range(clients)))
    for each in connections:
        each.close()
    return taken

"""A TCP proxy that counts what passes: bytes each way, and round trips."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Traffic:
    """What passed. A round trip: the client speaks after the server did, however much it says at once."""

    round_trips: int = 0
    bytes_out: int = 0
    bytes_in: int = 0

    def since(self, earlier: Traffic) -> Traffic:
        return Traffic(
            self.round_trips - earlier.round_trips,
            self.bytes_out - earlier.bytes_out,
            self.bytes_in - earlier.bytes_in,
        )

    def spoke(self, num_bytes: int, *, by_client: bool, was_server: bool) -> Traffic:
        """With one more piece of data; `was_server`: who spoke last on this connection, at first nobody."""
        if not by_client:
            return replace(self, bytes_in=self.bytes_in + num_bytes)
        trips = self.round_trips + (1 if was_server else 0)
        return replace(self, round_trips=trips, bytes_out=self.bytes_out + num_bytes)


@dataclass(slots=True)
class _Line:
    """One connection: its two ends, and whether the server, or nobody, spoke last."""

    client: socket.socket
    server: socket.socket
    was_server: bool = True


class Wiretap:
    """Passes connections on to a port of this machine, on a thread of its own."""

    def __init__(self, target_port: int) -> None:
        self.traffic = Traffic()
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.port: int = self._listener.getsockname()[1]
        self._eyes = selectors.DefaultSelector()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wiretap", daemon=True)

    def __enter__(self) -> Wiretap:
        self._eyes.register(self._listener, selectors.EVENT_READ, None)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5)
        for key in list(self._eyes.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._eyes.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for key, _ in self._eyes.select(0.2):
                if key.data is None:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._pass(key.fileobj, key.data)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        line = _Line(client, socket.create_connection(self._target))
        for end in (line.client, line.server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._eyes.register(end, selectors.EVENT_READ, line)

    def _pass(self, end: socket.socket, line: _Line) -> None:
        by_client = end is line.client
        try:
            data = end.recv(1 << 18)
            if data:
                self.traffic = self.traffic.spoke(len(data), by_client=by_client, was_server=line.was_server)
                line.was_server = not by_client
                (line.server if by_client else line.client).sendall(data)
                return
        except OSError:
            pass
        for each in (line.client, line.server):
            with contextlib.suppress(KeyError, ValueError):
                self._eyes.unregister(each)
            each.close()

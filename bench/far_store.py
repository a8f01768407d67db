"""A store that is far away: a proxy that keeps the answer to each PUT for a while."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator


class Delay:
    """HTTP, a thread each way of a connection: the first bytes of an answer to a PUT come `delay_s` late."""

    def __init__(self, target_port: int, delay_s: float) -> None:
        self.delay_s = delay_s
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        """One request after the other, so that whoever speaks is known."""
        with contextlib.suppress(OSError), client, socket.create_connection(self._target) as server:
            is_put = [False]
            back = threading.Thread(target=self._carry_back, args=(server, client, is_put), daemon=True)
            back.start()
            while data := client.recv(1 << 18):
                if data.startswith((b"PUT ", b"HEAD ", b"GET ", b"POST ", b"DELETE ")):
                    is_put[0] = data.startswith(b"PUT ")
                server.sendall(data)

    def _carry_back(self, server: socket.socket, client: socket.socket, is_put: list[bool]) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 18):
                if is_put[0] and not data.startswith(b"HTTP/1.1 100"):
                    is_put[0] = False
                    time.sleep(self.delay_s)
                client.sendall(data)


@contextlib.contextmanager
def delayed(target_port: int, delay_s: float) -> Iterator[Delay]:
    delay = Delay(target_port, delay_s)
    threading.Thread(target=delay._serve, name="delay", daemon=True).start()
    try:
        yield delay
    finally:
        delay._listener.close()

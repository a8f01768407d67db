"""One child process that is up when its probe says so, and gone when `stop` returns. Knows nothing of what it runs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tasks.errors import StoreUnavailable


def free_port(taken: set[int] | None = None) -> int:
    """A loopback port that nobody listens on now, and whose +10000 neighbour is free too (SeaweedFS's gRPC port)."""
    for _ in range(200):
        with socket.socket() as probe, socket.socket() as neighbour:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            if port + 10_000 > 65_535 or (taken and {port, port + 10_000} & taken):
                continue
            try:
                neighbour.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            if taken is not None:
                taken.update((port, port + 10_000))
            return port
    raise StoreUnavailable("no free pair of loopback ports was found")


class ChildProcess:
    """A child with its own log file. It dies with its parent on Linux, however the parent dies."""

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def wait_ready(self, probe: Callable[[], bool], timeout_s: float) -> None:
        """Raises `StoreUnavailable` with the end of the log if the child ends, or is not ready in time."""
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(OSError):
                if probe():
                    return
            if self.returncode is not None:
                raise StoreUnavailable(f"{self.name} ended at start (exit code {self.returncode}); its log:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"{self.name} was not ready after {timeout_s:.0f} s; its log:\n{self.tail()}")
            time.sleep(0.05)

    def tail(self, num_lines: int = 15) -> str:
        lines = self.log.read_text("utf-8", errors="replace").splitlines()
        return "\n".join(lines[-num_lines:])

    def send(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signum)

    def stop(self, grace_s: float = 10.0) -> int:
        """SIGTERM, then SIGKILL to the whole group after `grace_s`. Safe to call twice; returns the exit code."""
        if self.returncode is None:
            self.send(signal.SIGTERM)
            self.send(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        return self._process.wait()

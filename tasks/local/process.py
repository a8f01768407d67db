"""One child process that is up when its probe says so, and gone when `stop` returns. Knows nothing of what it runs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess  # nosec B404 # for the servers of the local stack
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tasks.errors import StoreUnavailable
from tasks.local.guard import guarded


def free_port(taken: set[int] | None = None, *, prefer: int = 0) -> int:
    """A loopback port that nobody listens on now, and whose +10000 neighbour is free too (SeaweedFS's gRPC port).

    `prefer` is tried first. The answers go into `taken`, so that one caller never gets the same port twice.
    """
    taken = set() if taken is None else taken
    for attempt in range(200):
        if port := _free_pair(0 if attempt else prefer, taken):
            taken.update((port, port + 10_000))
            return port
    raise StoreUnavailable("no free pair of loopback ports was found")


def _free_pair(wanted: int, taken: set[int]) -> int | None:
    with socket.socket() as probe, socket.socket() as neighbour:
        for each in (probe, neighbour):  # as servers do: a port in TIME_WAIT is free
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
            port: int = probe.getsockname()[1]
            if port + 10_000 > 65_535 or {port, port + 10_000} & taken:
                return None
            neighbour.bind(("127.0.0.1", port + 10_000))
        except OSError:
            return None
        return port


class ChildProcess:
    """A child with its own log file and session. It dies with its parent, however the parent dies (see `guard`)."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        watched, held = os.pipe()
        #: Closed by `stop`, or by the system when this process ends.
        self._lifeline = open(held, "wb", buffering=0)  # noqa: SIM115
        try:
            with log.open("ab") as sink:
                self._process = subprocess.Popen(  # nosec B603 # commands of our own, and no shell
                    guarded(command),
                    stdin=watched,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    env=None if env is None else dict(env),
                    cwd=cwd,
                    start_new_session=True,
                )
        finally:
            os.close(watched)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def wait_ready(self, probe: Callable[[], bool], timeout_s: float) -> None:
        """Raises `StoreUnavailable` with the end of the log if it ends or is not ready in time; it is stopped then."""
        deadline = time.monotonic() + timeout_s
        try:
            while not self._answers(probe):
                if self.returncode is not None:
                    raise self._late(f"ended at start (exit code {self.returncode})")
                if time.monotonic() > deadline:
                    raise self._late(f"was not ready after {timeout_s:.0f} s")
                time.sleep(0.05)
        except BaseException:
            self.stop(grace_s=0.5)
            raise

    @staticmethod
    def _answers(probe: Callable[[], bool]) -> bool:
        with contextlib.suppress(OSError, StoreUnavailable):
            return probe()
        return False

    def _late(self, what: str) -> StoreUnavailable:
        return StoreUnavailable(f"{self.name} {what}; its log:\n{self.tail()}")

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
        self._lifeline.close()
        return self._process.wait()

"""One incarnation of a rank, as its parent holds it: a spawned process, the socket to it, and the way to end it."""

from __future__ import annotations

import logging
import os
import socket
import subprocess  # nosec B404 # our own interpreter with our own module, no shell
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from .channel import Channel
from .messages import Begin, Command, Said

log = logging.getLogger(__name__)

MODULE = "engine.executors.rank_main"


@dataclass(frozen=True, slots=True)
class Ended:
    """The process is no more. `code` is its exit code, below 0 the signal that killed it."""

    epoch: int
    code: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Its end of the socket is gone, or said what no rank says."""

    epoch: int
    reason: str


Heard = Said | Cut | Ended


class RankProcess:
    """Never forked: a fresh interpreter. Must be made by a thread that outlives it, whose end would kill it (Linux)."""

    def __init__(self, index: int, begin: Begin, environment: Mapping[str, str], hear: Callable[[Heard], None]) -> None:
        """`hear` is called by threads of this object, for everything the process says and for its end."""
        self.epoch = begin.epoch
        self._name = f"rank {index}"
        self._hear = hear
        self._ending = threading.Lock()
        self._is_ending = False
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", MODULE, str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(  # nosec B603 # as above
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": _import_path(), **environment},
                process_group=0,  # Ctrl-C in a terminal is for the parent alone
            )
        self._channel = Channel(ours)
        self._channel.post(begin)
        threading.Thread(target=self._read, name=f"safelight-{self._name}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def post(self, command: Command) -> None:
        """Never blocks. Raises TypeError for what cannot cross."""
        self._channel.post(command)

    def end(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL if that has not helped within `grace_s`; `hear` gets Ended. Never blocks, idempotent."""
        with self._ending:
            if self._is_ending:
                return
            self._is_ending = True
        threading.Thread(target=self._end, args=(grace_s,), name=f"safelight-end-{self._name}", daemon=True).start()

    def see_off(self, patience_s: float, grace_s: float) -> None:
        """Wait so long for it to go by itself, then `end` it. Blocks until it is no more."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        self.end(grace_s)
        self._process.wait()

    def _end(self, grace_s: float) -> None:
        self._process.terminate()
        try:
            code = self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            log.warning("%s (pid %d) does not heed SIGTERM: killed", self._name, self.pid)
            self._process.kill()
            code = self._process.wait()
        self._channel.close()
        self._hear(Ended(self.epoch, code))

    def _read(self) -> None:
        try:
            while True:
                said = self._channel.receive()
                assert isinstance(said, Said)
                self._hear(said)
        except EOFError:
            self._hear(Cut(self.epoch, "its process has ended"))
        except Exception as error:
            log.exception("%s said what no rank says", self._name)
            self._hear(Cut(self.epoch, f"it said what no rank says ({error})"))


def _import_path() -> str:
    """So that the process finds the same packages as this one."""
    return os.pathsep.join(dict.fromkeys(path or os.getcwd() for path in sys.path))


def visible_device(device: str, environment: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """A CUDA device by number as the only one that a process sees, so that nothing of it lands on another card.

    The device's name there, and the variables for it. Any other device is left as it is.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda" or not number.isdigit():
        return device, {}
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in visible.split(",")] if visible else []
    if names and int(number) >= len(names):
        return device, {}  # torch says better than we what is wrong
    return "cuda", {"CUDA_VISIBLE_DEVICES": names[int(number)] if names else number}

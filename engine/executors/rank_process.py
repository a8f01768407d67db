"""One incarnation of a rank, as its parent holds it: a spawned process, the socket to it, and the way to end it."""

from __future__ import annotations

import logging
import subprocess  # nosec B404 # for its exception
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from .channel import Channel
from .messages import Begin, Command, Said
from .spawn import spawned

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
    """Made by a thread that outlives it: see `spawn`."""

    def __init__(self, index: int, begin: Begin, environment: Mapping[str, str], hear: Callable[[Heard], None]) -> None:
        """`hear` is called by threads of this object, for everything the process says and for its end."""
        self.epoch = begin.epoch
        self._name = f"rank {index}"
        self._hear = hear
        self._ending = threading.Lock()
        self._is_ending = False
        self._process, end = spawned(MODULE, environment)
        self._channel = Channel(end)
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
        """Wait so long for it to go by itself, then `end` it."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        self.end(grace_s)

    def wait(self) -> None:
        """Until it is no more. Only once it is being ended."""
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

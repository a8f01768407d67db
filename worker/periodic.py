"""A thread that does one small thing again and again, and survives an outage of what it talks to."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from tasks.errors import StoreUnavailable

log = logging.getLogger(__name__)


#: The device's thread has to come to its turn, however small an interval somebody sets.
LEAST_S = 0.01


class Periodic:
    """Calls `tick` every `interval_s` (with up to `jitter` of it added) from `start` to `stop`."""

    def __init__(self, name: str, tick: Callable[[], None], interval_s: float, *, jitter: float = 0.0) -> None:
        self._tick = tick
        self._interval_s = max(LEAST_S, interval_s)
        self._jitter = jitter
        self._stop = threading.Event()
        self._outage = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s * (1 + random.random() * self._jitter)):  # nosec B311 # jitter
            self._once()

    def _once(self) -> None:
        try:
            self._tick()
        except StoreUnavailable as error:
            if not self._outage:  # an outage is told once, not at every beat
                log.warning("%s: %s", self._thread.name, error)
            self._outage = True
        except Exception:
            log.exception("%s: unexpected error; it goes on", self._thread.name)
        else:
            if self._outage:
                log.info("%s: the store is back", self._thread.name)
            self._outage = False

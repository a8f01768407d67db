"""Whether the object store is away, as the last tries told. While it is, one at a time tries whether it is back.

So hundreds of finished jobs neither hammer a store that struggles nor wait in line for one that does not answer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 10.0
#: How often a waiter looks whether it should still wait.
_GLANCE_S = 5.0


class Outage:
    """Who got a turn says how it went: `failed`, `over` for any answer of the store, or `pass_on`. Thread-safe.

    One whose try has had no answer for long says `failed` too, and may still come to an answer.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._since: float | None = None
        self._pause_s = FIRST_PAUSE_S
        self._next_try = 0.0
        #: The thread that tries whether it is back.
        self._trier: int | None = None
        self._version = 0

    @property
    def is_away(self) -> bool:
        return self._since is not None

    @property
    def away_s(self) -> float:
        since = self._since
        return 0.0 if since is None else self._clock() - since

    def wait_turn(self, look: Callable[[], None], until: float) -> None:
        """At once if the store is there, at the latest at `until`. `look` is called before each wait, and may raise."""
        while True:
            with self._changed:
                seen, wait_s = self._version, self._next_try - self._clock()
                if self._since is None or self._clock() >= until:
                    return
                if self._trier is None and wait_s <= 0:
                    self._trier = threading.get_ident()
                    return
            look()
            with self._changed:
                if seen == self._version:
                    self._changed.wait(min(_GLANCE_S, wait_s) if wait_s > 0 else _GLANCE_S)

    def may_try(self, until: float) -> bool:
        """Whether one whose turn came before still has it."""
        with self._changed:
            return self._since is None or self._trier == threading.get_ident() or self._clock() >= until

    def wake(self) -> None:
        """Let every waiter look at once."""
        with self._changed:
            self._tell()

    def _tell(self) -> None:
        self._version += 1
        self._changed.notify_all()

    def failed(self) -> None:
        with self._changed:
            now = self._clock()
            if self._since is None:
                self._since, self._pause_s = now, FIRST_PAUSE_S
                log.warning("the object store is away; finished outputs wait for it")
            elif self._trier == threading.get_ident():
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            else:
                return
            self._trier = None
            self._next_try = now + self._pause_s
            self._tell()

    def pass_on(self) -> None:
        """The turn ended without an answer."""
        with self._changed:
            if self._trier == threading.get_ident():
                self._trier = None
                self._tell()

    def over(self) -> None:
        with self._changed:
            if self._since is not None:
                log.info("the object store is back after %.0f s", self.away_s)
                self._tell()
            self._since = self._trier = None

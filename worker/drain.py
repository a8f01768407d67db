"""Leaving in good order: nothing new, what runs may finish within the grace, the rest goes back to the queue."""

from __future__ import annotations

import logging
import os
import threading
import time

from worker.attempt import Attempt, Attempts, Stop

log = logging.getLogger(__name__)

#: After the device broke: time for the rest to settle before the process ends, come what may.
_LAST_RESORT_S = 15.0


class Drain:
    """`begin` may be called from a signal handler; a second call gives everything back at once.

    `request` is for wishes that may come twice, such as a key that every beat finds: it hurries nobody, and the first
    signal after it leaves the jobs what is left of the grace.
    """

    def __init__(self, attempts: Attempts, grace_s: float) -> None:
        self._attempts = attempts
        self._grace_s = grace_s
        self._begun = threading.Event()
        self._hurry = threading.Event()
        self._signalled = False
        self._began_at = 0.0
        #: Why the process should end with a failure, if it should.
        self.broken: str | None = None

    def begin(self) -> None:
        if self._signalled:
            self._hurry.set()
        self._signalled = True
        self.request()

    def request(self) -> None:
        if self._begun.is_set():
            return
        self._began_at = time.monotonic()
        self._begun.set()
        threading.Thread(target=self._run, name="drain", daemon=True).start()

    def begin_broken(self, reason: str) -> None:
        """The device is gone: nothing that is here can finish here."""
        if self.broken is None:
            self.broken = reason
            log.error("this worker stops: %s", reason)
        self._hurry.set()
        if not self._begun.is_set():
            last_resort = threading.Timer(_LAST_RESORT_S, os._exit, (1,))  # a hung device's thread cannot be joined
            last_resort.daemon = True
            last_resort.start()
            self.request()

    @property
    def draining(self) -> bool:
        return self._begun.is_set()

    def patience_s(self, settle_s: float) -> float:
        """Seconds from now that jobs may still take: the grace, and `settle_s` to write down what is given back.

        0 without a drain.
        """
        if not self.draining:
            return 0.0
        return max(0.0, self._began_at + self._grace_s + settle_s - time.monotonic())

    def wait(self, settle_s: float) -> None:
        """Until every attempt has settled, those of a replaced consumer too, or patience is over."""
        while len(self._attempts) and self.patience_s(settle_s) > 0:
            time.sleep(0.02)

    def _run(self) -> None:
        live = self._attempts.live()
        log.info("draining: %d jobs are here; those not yet in a batch go back at once", len(live))
        self._give_back([attempt for attempt in live if not attempt.started])
        deadline = time.monotonic() + self._grace_s
        while len(self._attempts) and time.monotonic() < deadline and not self._hurry.wait(0.05):
            self._give_back([attempt for attempt in self._attempts.live() if not attempt.started])
        self._give_back(list(self._attempts.live()))

    def _give_back(self, attempts: list[Attempt]) -> None:
        """All at once: each may wait for its request to leave the engine, which lets them all go at one step."""
        for attempt in (attempt for attempt in attempts if attempt.reason is None):
            threading.Thread(target=attempt.stop, args=(Stop.DRAIN,), name="give-back", daemon=True).start()

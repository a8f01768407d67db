"""The lease keeper: renews every live attempt in one call a beat, and stops those that it can no longer vouch for."""

from __future__ import annotations

import time
from collections.abc import Callable

from tasks.store import JobStore, Lease
from worker.attempt import Attempt, Attempts, Stop


class LeaseKeeper:
    """Beats a few times a lease. If the store stays silent for a whole lease the attempt fences itself off."""

    def __init__(
        self, store: JobStore, attempts: Attempts, lease_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._attempts = attempts
        self._lease_s = lease_s
        self._clock = clock
        #: Until when each attempt's lease is known to hold, by this process's monotonic clock.
        self._held_until: dict[tuple[str, int], float] = {}
        self._first_success: float | None = None

    @property
    def interval_s(self) -> float:
        return self._lease_s / 4

    def has_kept_for_a_lease(self) -> bool:
        """True once own beats have succeeded for a whole lease without a break: only then may others be judged."""
        return self._first_success is not None and self._clock() - self._first_success > self._lease_s

    def tick(self) -> None:
        live = self._attempts.live()
        beat_at = self._clock()
        try:
            answers = self._store.renew({attempt.job.id: attempt.number for attempt in live}, self._lease_s)
        except BaseException:
            self._first_success = None
            self._fence_overdue(live)
            raise
        if self._first_success is None:
            self._first_success = beat_at
        self._held_until = {a.key: beat_at + self._lease_s for a in live if answers.get(a.job.id) != Lease.LOST}
        for attempt in live:
            match answers.get(attempt.job.id):
                case Lease.LOST:
                    attempt.stop(Stop.LOST)
                case Lease.ABORT:
                    attempt.stop(Stop.ABORT)

    def _fence_overdue(self, live: tuple[Attempt, ...]) -> None:
        now = self._clock()
        for attempt in live:
            if now > self._held_until.get(attempt.key, attempt.claimed_at + self._lease_s):
                attempt.stop(Stop.LOST)

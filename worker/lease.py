"""The lease keeper: renews every live attempt in one call a beat, and stops those that the store no longer grants.

While the store is out of reach attempts go on: nobody else can claim their jobs either, and whatever they write
later is refused if their lease was lost (docs/decisions/0004-work-goes-on-in-an-outage.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tasks.store import JobStore, Lease
from worker.attempt import Attempts, Stop


class LeaseKeeper:
    """Beats four times a lease."""

    def __init__(
        self, store: JobStore, attempts: Attempts, lease_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._attempts = attempts
        self._lease_s = lease_s
        self._clock = clock
        self._first_success: float | None = None
        self._last_success = 0.0

    @property
    def interval_s(self) -> float:
        return self._lease_s / 4

    def has_kept_for_a_lease(self) -> bool:
        """True once own beats have succeeded for a whole lease without a break: only then may others be judged.

        A process that was frozen has had a break as well, be it the whole machine with all who should have renewed.
        """
        now, first = self._clock(), self._first_success
        return first is not None and now - first > self._lease_s and now - self._last_success <= self._lease_s / 2

    def tick(self) -> None:
        live = self._attempts.live()
        # An attempt may enter the register after the one that replaced it.
        newest = {attempt.job.id: attempt.number for attempt in sorted(live, key=lambda each: each.number)}
        beat_at = self._clock()
        try:
            # Also with nothing to renew: only an answer of the store says that the others could renew theirs.
            answers = self._store.renew(newest, self._lease_s)
        except BaseException:
            self._first_success = None
            raise
        if self._first_success is None or beat_at - self._last_success > self._lease_s:
            self._first_success = beat_at
        self._last_success = beat_at
        for attempt in live:
            if attempt.number < newest[attempt.job.id]:  # its job came back here before it had noticed
                attempt.stop(Stop.LOST)
                continue
            match answers.get(attempt.job.id):
                case Lease.LOST:
                    attempt.stop(Stop.LOST)
                case Lease.ABORT:
                    attempt.stop(Stop.ABORT)

"""The backlog: jobs whose parcels wait in the spool for the object store. They hold a lease, but no place.

A job that joins sends its delivery's thread home (the message is acknowledged; the record and the lease keep custody),
so that the next one can be rendered. The bound is a number of jobs, and the spool's bytes.
"""

from __future__ import annotations

import logging
import threading

from worker.attempt import Attempt
from worker.outage import Outage
from worker.parcel import Parcel
from worker.spool import Spool

log = logging.getLogger(__name__)


class Backlog:
    def __init__(self, spool: Spool | None, outage: Outage, max_jobs: int) -> None:
        self._spool = spool
        self._outage = outage
        self._max_jobs = max_jobs
        self._waiting: set[tuple[str, int]] = set()
        self._lock = threading.Lock()
        self._has_told = False

    @property
    def is_full(self) -> bool:
        """The worker takes nothing new until the store is back, which those who wait find out."""
        if self._spool is None or not self._waiting:
            return False  # then places alone are the bound
        full = self._outage.is_away and (len(self._waiting) >= self._max_jobs or self._spool.is_full)
        if full and not self._has_told:
            log.warning("%d finished jobs wait for the object store: this worker takes nothing new", len(self._waiting))
        if self._has_told and not full:
            log.info("this worker takes jobs again")
        self._has_told = full
        return full

    def join(self, attempt: Attempt, parcel: Parcel) -> None:
        """If it has its bytes on disk and there is room; else it stays where it is."""
        with self._lock:
            if attempt.key in self._waiting or parcel.path is None or len(self._waiting) >= self._max_jobs:
                return
            self._waiting.add(attempt.key)
        try:
            parcel.settle_on_disk()
        except OSError as error:
            log.warning("job %s: its parcel stays in memory: %s", attempt.job.id, error)
            self.leave(attempt)
            return
        attempt.set_aside()

    def leave(self, attempt: Attempt) -> None:
        with self._lock:
            self._waiting.discard(attempt.key)

    def figures(self) -> dict[str, object]:
        """For a beat."""
        return {
            "waiting": len(self._waiting),
            "spool_bytes": 0 if self._spool is None else self._spool.size_bytes,
            "away_s": round(self._outage.away_s, 1),
            "full": self.is_full,
        }

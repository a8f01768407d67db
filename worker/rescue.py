"""The rescuer: ends attempts whose lease ran out, and sends a new message for queued jobs whose message was lost."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tasks.hints import Hinter
from tasks.job import JobStatus
from tasks.logs import about
from tasks.store import JobStore

log = logging.getLogger(__name__)


class Rescuer:
    """Runs in every worker; the store's scripts make it safe that several do the same.

    It judges others only while `may_judge()`: after an outage of the store nobody has renewed, and everybody's
    jobs would look lost.
    """

    def __init__(self, store: JobStore, hinter: Hinter, max_attempts: int, may_judge: Callable[[], bool]) -> None:
        self._store = store
        self._hinter = hinter
        self._max_attempts = max_attempts
        self._may_judge = may_judge

    def tick(self) -> None:
        if self._may_judge():
            self._reap()
        hints = self._store.stale_hints()
        if hints:
            log.info("sending %d overdue messages again", len(hints))
            self._hinter.publish(hints)

    def _reap(self) -> None:
        reaped = self._store.reap(self._max_attempts)
        for lost in reaped:
            with about(job_id=lost.hint.job_id, model=lost.hint.model):
                log.warning("the lease of job %s ran out; it is %s now", lost.hint.job_id, lost.status.value)
        self._hinter.publish([lost.hint for lost in reaped if lost.status is JobStatus.QUEUED])

"""The salvager: sends parcels home that no attempt of this process holds and whose jobs wait, and clears the rest.

A job that is queued again while its outputs lie here needs no device: it is claimed without waiting for its message.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

from tasks.errors import UnknownJob
from tasks.job import Job, JobStatus
from tasks.store import JobStore
from worker.attempt import Attempts
from worker.parcel import Damaged, Manifest, Unreadable, open_parcel
from worker.spool import Entry, Spool

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
_MAX_LOOKS, _MAX_AT_ONCE = 50, 8
#: Between looks at what is kept for a retry.
_LETTER_INTERVAL_S = 300.0


class Salvager:
    """`begin` claims a job and does the rest."""

    def __init__(
        self,
        store: JobStore,
        spool: Spool,
        attempts: Attempts,
        begin: Callable[[str], Future[str]],
        may_begin: Callable[[], bool],
    ) -> None:
        self._store = store
        self._spool = spool
        self._attempts = attempts
        self._begin = begin
        self._may_begin = may_begin
        self._begun: list[Future[str]] = []
        self._looked_at: dict[str, float] = {}
        self._tidied_at = 0.0

    def tick(self) -> None:
        """Raises `StoreUnavailable`."""
        now = time.monotonic()
        if now - self._tidied_at > _LETTER_INTERVAL_S:
            self._tidied_at = now
            self._spool.tidy()
        self._begun = [each for each in self._begun if not each.done()]
        entries = self._spool.entries()
        self._looked_at = {e.path.name: self._looked_at.get(e.path.name, 0.0) for e in entries}
        held = {attempt.parcel.path for attempt in self._attempts.live() if attempt.parcel is not None}
        due = [entry for entry in entries if entry.path not in held and self._is_due(entry, now)]
        for entry in sorted(due, key=lambda each: self._looked_at[each.path.name])[:_MAX_LOOKS]:
            self._looked_at[entry.path.name] = now
            self._look(entry)

    def _is_due(self, entry: Entry, now: float) -> bool:
        looked_at = self._looked_at[entry.path.name]
        return not looked_at or not entry.has_failed or now - looked_at > _LETTER_INTERVAL_S

    def _look(self, entry: Entry) -> None:
        try:
            manifest = open_parcel(entry.path).manifest
        except Unreadable:  # most likely it has just been sent home
            return
        except Damaged as error:
            log.warning("a parcel is dropped: %s", error)
            self._spool.remove(entry.path)
            return
        if manifest.system != self._spool.system:
            return
        job = self._job_of(manifest)
        if job is not None and job.status is JobStatus.QUEUED:
            self._bring_home(entry, job.id)
        elif job is not None and job.error is not None and job.error.type == "upload_failed":
            self._spool.retire(entry.path)
        elif job is None or job.status.is_terminal:
            self._spool.remove(entry.path)

    def _job_of(self, manifest: Manifest) -> Job | None:
        """None: it is there no more."""
        try:
            job = self._store.get(manifest.job_id)
        except UnknownJob:
            return None
        return job if job.created_at == manifest.created_at else None

    def _bring_home(self, entry: Entry, job_id: str) -> None:
        if len(self._begun) >= _MAX_AT_ONCE or not self._may_begin() or self._spool.open(entry.path) is None:
            return
        log.info("job %s is queued again and its outputs are here: they go up without a device", job_id)
        self._begun.append(self._begin(job_id))

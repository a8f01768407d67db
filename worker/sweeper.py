"""The sweeper: deletes the checkpoints of jobs that were ended from outside, such as by an abort in the queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tasks.errors import StoreUnavailable
from tasks.store import JobStore

log = logging.getLogger(__name__)

INTERVAL_S = 20.0
_LEASE_S = 300.0
_LIMIT = 100


class Sweeper:
    """Runs in every worker. What cannot be deleted now, as the object store is away, comes again after a lease."""

    def __init__(self, store: JobStore, delete: Callable[[Sequence[str]], None]) -> None:
        self._store = store
        self._delete = delete

    def tick(self) -> None:
        job_ids = self._store.litter(_LIMIT, _LEASE_S)
        if not job_ids:
            return
        try:
            self._delete(job_ids)
        except StoreUnavailable as error:
            log.warning("%d checkpoints stay for now: %s", len(job_ids), error)
            return
        self._store.swept(job_ids)

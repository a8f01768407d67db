"""The abort watcher: one round trip for all live attempts, often enough that an abort costs about one step."""

from __future__ import annotations

from tasks.store import JobStore
from worker.attempt import Attempts, Stop


class AbortWatcher:
    def __init__(self, store: JobStore, attempts: Attempts) -> None:
        self._store = store
        self._attempts = attempts

    def tick(self) -> None:
        live = self._attempts.live()
        if not live:
            return
        wanted = self._store.aborts_wanted([attempt.job.id for attempt in live])
        for attempt in live:
            if attempt.job.id in wanted:
                attempt.stop(Stop.ABORT)

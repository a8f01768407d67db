"""The abort watcher: stops attempts whose end is wanted, soon enough that an abort costs about one step.

While the store tells of abort keys, a look costs no round trip unless there is one; else, and once whenever the store
begins to tell, it is a round trip for all live attempts.
"""

from __future__ import annotations

from tasks.abort_feed import AbortFeed
from tasks.store import JobStore
from worker.attempt import Attempts, Stop


class AbortWatcher:
    def __init__(self, store: JobStore, attempts: Attempts, feed: AbortFeed | None = None) -> None:
        self._store = store
        self._attempts = attempts
        self._feed = feed
        #: Jobs whose keys have changed and were not looked at yet.
        self._changed: set[str] = set()
        #: How often the feed had begun when all keys were looked at.
        self._beginnings = 0

    def tick(self) -> None:
        live = self._attempts.live()
        feed = self._feed
        if feed is None or not feed.is_on:
            self._look({attempt.job.id for attempt in live})
            return
        beginnings = feed.beginnings
        self._changed |= set(feed.take(attempt.job.id for attempt in live))
        if beginnings != self._beginnings:  # who was there meanwhile may have missed something
            self._changed |= {attempt.job.id for attempt in live}
        self._look(self._changed)
        self._changed, self._beginnings = set(), beginnings

    def _look(self, job_ids: set[str]) -> None:
        if not job_ids:
            return
        wanted = self._store.aborts_wanted(sorted(job_ids))
        for attempt in self._attempts.live():
            if attempt.job.id in wanted:
                attempt.stop(Stop.ABORT)

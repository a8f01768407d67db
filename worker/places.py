"""Places for jobs: fewer than the pool has threads, so that `safelight.submit` never waits behind jobs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: How long a delivery waits for a place before it goes back to its queue, and its thread to whatever comes first there.
#: So a full worker hands back up to four messages a second, some 40 commands for Redis. Longer would be longer for a
#: `submit` too, as Celery reads no more messages than there are threads; and to keep the turn without its message
#: would keep it from a worker that is free.
PATIENCE_S = 0.5
#: Celery tells each return of a message as a warning: several a second, while all is well.
PLACES_TAKEN = "every place for jobs is taken"
MODEL_WAITS = "its model waits until another makes room"
_TELLER = "celery.app.trace"


def keep_quiet() -> None:
    """Leave those warnings out of this process's log."""
    reasons = (PLACES_TAKEN, MODEL_WAITS)
    logging.getLogger(_TELLER).addFilter(lambda record: not any(reason in record.getMessage() for reason in reasons))


class Places:
    def __init__(self, num_places: int) -> None:
        self._free = threading.BoundedSemaphore(num_places)
        #: While it says so nobody gets a place.
        self.are_closed: Callable[[], bool] = lambda: False

    @contextmanager
    def one(self, patience_s: float = PATIENCE_S) -> Iterator[bool]:
        """Yields False if none was free in time."""
        if self.are_closed():
            time.sleep(patience_s)
            yield False
            return
        if not self._free.acquire(timeout=patience_s):
            yield False
            return
        try:
            yield True
        finally:
            self._free.release()

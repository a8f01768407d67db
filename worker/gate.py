"""Many ordinary jobs at once, or exactly one quarantined job alone: a crash is then blamed on the right one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_POLL_S = 0.5


class Gate:
    """A job passes `entering` before it is claimed, and `alone` if the claim says that it must run by itself."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        #: Jobs inside that want to be alone; while there is one nobody enters.
        self._loners = 0

    @contextmanager
    def entering(self, give_up: Callable[[], bool]) -> Iterator[bool]:
        """Yields False, without entering, as soon as `give_up()` says so."""
        if not self._enter(give_up):
            yield False
            return
        try:
            yield True
        finally:
            self._leave()

    def _enter(self, give_up: Callable[[], bool]) -> bool:
        with self._changed:
            while self._loners:
                if give_up():
                    return False
                self._changed.wait(_POLL_S)
            self._inside += 1
            return True

    def _leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    @contextmanager
    def alone(self, check: Callable[[], None]) -> Iterator[None]:
        """Wait, having entered, until all others are out. `check()` may raise to end the wait.

        Several loners wait for one another's turn by leaving while they wait.
        """
        with self._changed:
            self._loners += 1
            self._inside -= 1
            try:
                while self._inside:
                    self._changed.wait(_POLL_S)
                    check()
            except BaseException:
                self._inside += 1
                self._loners -= 1
                self._changed.notify_all()
                raise
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._loners -= 1
                self._changed.notify_all()

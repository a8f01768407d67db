"""Many ordinary jobs at once, or exactly one quarantined job alone: a crash is then blamed on the right one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_POLL_S = 0.5


class Entered:
    """A job that is inside; the first `leave` counts."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave
        self._is_inside = True

    def leave(self) -> None:
        if self._is_inside:
            self._is_inside = False
            self._leave()


class Gate:
    """A job passes `entering` before it is claimed, and `alone` if the claim says that it must run by itself."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        #: Jobs inside that want to be alone; while there is one nobody enters.
        self._loners = 0

    @contextmanager
    def entering(self, give_up: Callable[[], bool]) -> Iterator[Entered | None]:
        """Yields None, without entering, as soon as `give_up()` says so. The job may leave before the block ends."""
        if not self._enter(give_up):
            yield None
            return
        entered = Entered(self._leave)
        try:
            yield entered
        finally:
            entered.leave()

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
    def alone(self, check: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Wait, having entered, until all others are out. `check()` may raise to end the wait. Yields how to let others
        in before the block ends.

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
        alone = Entered(self._no_longer_alone)
        try:
            yield alone.leave
        finally:
            alone.leave()

    def _no_longer_alone(self) -> None:
        with self._changed:
            self._loners -= 1
            self._changed.notify_all()

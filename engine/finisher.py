"""The thread that makes outputs of what the device has finished, while the device goes on with the next rows.

A request whose last output is done ends here. What fails is handed back to the device thread, which alone may ask
whether the device is at fault. Nothing is ever given up for having taken long.
"""

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from .adapter import Output
from .ledger import Account, Ledger
from .pending import Pending
from .request import Row

log = logging.getLogger(__name__)

#: Rows that wait; beyond it the device waits too, which bounds what unfinished outputs hold of its memory.
MAX_WAITING = 64


@dataclass(frozen=True, slots=True)
class _Task:
    account: Account
    row: Row
    pending: Pending


@dataclass(frozen=True, slots=True)
class _Mark:
    """Set when all before it is done."""

    reached: threading.Event = field(default_factory=threading.Event)
    is_last: bool = False


class Finisher:
    """`take` from the device thread, in order; `spoiled` hears on this thread of a row that came to nothing."""

    def __init__(
        self, ledger: Ledger, clock: Callable[[], float], spoiled: Callable[[Account, Exception], None]
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._spoiled = spoiled
        self._tasks: queue.Queue[_Task | _Mark] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._run, name="safelight-finisher", daemon=True)

    def take(self, account: Account, row: Row, output: Output | Pending) -> None:
        """A row that the device is done with; one that is an output already ends no sooner than those before it."""
        self._put(_Task(account, row, output if isinstance(output, Pending) else Pending(lambda: output)))

    def settle(self) -> None:
        """Wait until all that was taken has been told."""
        if self._thread.ident is not None:
            mark = _Mark()
            self._put(mark)
            mark.reached.wait()

    def close(self, timeout_s: float) -> None:
        """End the thread; what it has not told by then is not told."""
        if self._thread.ident is not None:
            self._put(_Mark(is_last=True))
            self._thread.join(timeout_s)

    def _put(self, task: _Task | _Mark) -> None:
        if self._thread.ident is None:
            self._thread.start()
        self._tasks.put(task)

    def _run(self) -> None:
        while True:
            task = self._tasks.get()
            if isinstance(task, _Mark):
                task.reached.set()
                if task.is_last:
                    return
                continue
            try:
                self._finish(task)
            except Exception as error:
                log.exception("an output could not be finished")
                self._spoiled(task.account, error)

    def _finish(self, task: _Task) -> None:
        account = task.account
        if self._ledger.of(account.request) is not account:  # it has ended meanwhile
            return
        outcome = task.pending.finish()
        if not isinstance(outcome, Output):
            self._spoiled(account, outcome)
        elif account.keep(task.row, outcome):
            self._ledger.end(account, account.completed(self._clock()))

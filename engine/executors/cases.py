"""One open request in front of the ranks: where it is, what its caller has heard, what becomes of it without its rank.

What a caller has heard is not said twice, and never taken back: a request that begins anew on another rank is silent
until it is further than before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ledger import Account
from ..result import Aborted, Chunk, Completed, Event, Failed, Preview, Progress, Started, Terminal


@dataclass(slots=True, eq=False)
class Case:
    """`rank` and `ticket` say in whose hand it is; `started`: on this rank. `alone`: it had the rank for itself."""

    account: Account
    rank: int | None = None
    ticket: str = ""
    started: bool = False
    alone: bool = False
    aborting: bool = False
    losses: int = 0
    has_handed_over: bool = False

    @property
    def request_id(self) -> str:
        return self.account.request.request_id

    def hand_to(self, rank: int, ticket: str, *, alone: bool) -> None:
        """It is in the hand of this rank, which knows it by this ticket."""
        self.rank, self.ticket, self.alone, self.started = rank, ticket, alone, False

    def hear(self, event: Event, now: float) -> Event | None:
        """The event for the caller, None if it is no news to him."""
        mine = replace(event, request_id=self.request_id)
        match mine:
            case Completed() | Aborted() | Failed() if mine.metrics is not None:
                mates = tuple(ticket.rpartition("#")[0] for ticket in mine.metrics.mates)
                return replace(mine, metrics=replace(mine.metrics, mates=mates))
        match event:
            case Started():
                self.started = True
                if self.account.started_s is not None:
                    return None
                self.account.started_s = now
            case Progress(step=step) | Preview(step=step):
                if self.losses and step <= (self.account.step or 0):
                    return None
                if isinstance(event, Progress):
                    self.account.step = step
            case Chunk():
                self.has_handed_over = True
        return mine

    def lose(self, reason: str) -> Terminal | None:
        """Its rank has ended under it: its own end, or None, and it is to be queued again."""
        self.losses += 1
        self.rank = None
        if self.aborting:
            return Aborted(self.request_id, self.account.step)
        if self.has_handed_over:
            words = f"{reason}, and some of its outputs had been handed over"
        elif self.started and self.alone:
            words = f"{reason}, while it ran alone there"
        else:
            return None
        return Failed(self.request_id, "internal", words, retryable=True)

"""Which waiting request goes to which rank, and when. Pure: time is an argument, nothing blocks or knows of processes.

The queue stays in front: a rank is given what it can begin now. In step mode rows join wherever there is a place; in
request mode a rank without work gets a wave, and in one plan each idle rank gets a different one. Order is that of the
other schedulers: priority, plus one level for every `ageing_s` waited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from ..request import DiffusionRequest
from ..scheduler import SchedulerPolicy
from ..waiting import Entry, Waiting
from .affinity import affinity
from .seats import Seat, cheapest
from .waves import Group, allot, deal


@dataclass(frozen=True, slots=True)
class Wave:
    """Requests for one rank, best first. In request mode they are one batch, as far as the rank's own key agrees."""

    rank: int
    requests: tuple[DiffusionRequest, ...]


@dataclass(slots=True)
class Placement:
    """The waiting requests, and what each rank has in hand. One thread only."""

    policy: SchedulerPolicy
    mode: Literal["request", "step"]
    seats: list[Seat]
    _waiting: Waiting = field(init=False)
    #: Requests that may have ended a process: each gets a rank for itself.
    _suspects: set[str] = field(init=False, default_factory=set)
    #: The rank that is kept from filling up, for a request that needs one for itself.
    _reserved: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._waiting = Waiting(self.policy.ageing_s)

    @property
    def waiting_rows(self) -> int:
        return self._waiting.rows

    @property
    def max_rows(self) -> int:
        """Of all ranks that are up."""
        return sum(seat.max_rows for seat in self.seats if seat.up)

    def submit(self, request: DiffusionRequest, arrival_s: float, *, suspect: bool = False) -> None:
        """Queue it with the age it has, for a request that comes back too."""
        if suspect:
            self._suspects.add(request.request_id)
        self._waiting.add(request, affinity(request, self.mode), arrival_s)

    def is_suspect(self, request: DiffusionRequest) -> bool:
        return request.request_id in self._suspects

    def remove(self, request: DiffusionRequest) -> None:
        """Forget a request that has ended, wherever it was."""
        self._suspects.discard(request.request_id)
        self._waiting.remove(request)
        for seat in self.seats:
            seat.leave(request)

    def row_done(self, request: DiffusionRequest) -> None:
        """One of its rows is finished and has left its place."""
        for seat in self.seats:
            seat.row_done(request)

    def up(self, rank: int, max_rows: int) -> None:
        """The rank can take requests, so many rows at a time."""
        self.seats[rank].up, self.seats[rank].max_rows = True, max_rows

    def down(self, rank: int) -> None:
        """The rank can take none; those in its hand are the caller's to queue again or to end."""
        self.seats[rank].clear()

    def plan(self, now: float) -> list[Wave]:
        """What goes out now; it leaves the queue and is in the ranks' hands."""
        before = list(self._waiting)
        placed = self._plan_steps() if self.mode == "step" else self._plan_batches(now)
        for entries in placed.values():
            for entry in entries:
                entry.take(entry.rows_left)
        self._waiting.forget_planned()
        self._count_passes(before, [entry for entries in placed.values() for entry in entries])
        return [Wave(rank, tuple(entry.request for entry in entries)) for rank, entries in sorted(placed.items())]

    def wake_s(self) -> float | None:
        """When `plan` gives something if nothing else happens; None when it does not depend on time."""
        if self.mode == "step" or not any(seat.idle for seat in self.seats):
            return None
        return min((group.ready_s(self.policy) for group in self._groups()), default=None)

    def _count_passes(self, before: Sequence[Entry], placed: Sequence[Entry]) -> None:
        last = max((entry.rank for entry in placed), default=None)
        for entry in before:
            if last is not None and entry.rows_left and entry.rank < last:
                entry.passed += 1

    def _apart(self, entry: Entry) -> bool:
        """Whether it must have a rank for itself, from beginning to end."""
        return entry.request.solo or self.is_suspect(entry.request)

    def _plan_steps(self) -> dict[int, list[Entry]]:
        """Each to the rank where it costs least. The first that needs a rank for itself keeps one from filling up."""
        placed: dict[int, list[Entry]] = {}
        reserved: Seat | None = None
        for entry in islice(self._waiting, self.policy.look_ahead):
            apart = self._apart(entry)
            seats = [seat for seat in self.seats if seat.open and seat is not reserved]
            seat = next((seat for seat in seats if seat.idle), None) if apart else cheapest(seats, entry)
            if seat is not None:
                seat.take(entry, apart=apart)
                placed.setdefault(seat.rank, []).append(entry)
            elif not apart:
                break
            elif reserved is None:
                reserved = min(seats, key=lambda seat: (seat.rows, seat.rank != self._reserved), default=None)
        self._reserved = None if reserved is None else reserved.rank
        return placed

    def _plan_batches(self, now: float) -> dict[int, list[Entry]]:
        """Ready groups, best first, get an idle rank each; ranks that are left over take parts of the largest."""
        idle = [seat for seat in self.seats if seat.idle]
        ready = [group for group in self._groups() if group.ready_s(self.policy) <= now][: len(idle)]
        placed: dict[int, list[Entry]] = {}
        for group, num_ranks in zip(ready, allot([group.sizes for group in ready], len(idle)), strict=True):
            for entries in deal(group.entries, num_ranks, min(seat.max_rows for seat in idle)):
                seat = min(idle, key=lambda seat: (seat.last != entries[0].key, seat.rank))
                idle.remove(seat)
                for entry in entries:
                    seat.take(entry, apart=self._apart(entry))
                placed[seat.rank] = entries
        return placed

    def _groups(self) -> list[Group]:
        """Requests that may share a batch, best first. One that was passed `max_passes` times is a barrier."""
        cap = min((seat.max_rows for seat in self.seats if seat.up), default=1)
        groups: dict[object, Group] = {}
        for entry in islice(self._waiting, self.policy.look_ahead):
            apart = entry.request.alone or self._apart(entry)
            group = groups.setdefault(id(entry) if apart else entry.key, Group(cap, apart))
            group.entries.append(entry)
            if entry.passed >= self.policy.max_passes:
                group.overdue = True
                break
        return list(groups.values())

"""What a rank has in hand, as the placement sees it. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from ..request import DiffusionRequest
from ..waiting import Entry

#: Every further kind of rows on a rank has forwards of its own, whose fixed cost is about that of so many rows.
GROUP_ROWS = 1


@dataclass(slots=True)
class Held:
    """A request in the hand of a rank, with the rows that it still has to do."""

    entry: Entry
    rows: int


@dataclass(slots=True, eq=False)
class Seat:
    """One rank. `apart`: what it has must not be joined. `last`: the key of what came last, which may still be warm."""

    rank: int
    max_rows: int = 1
    up: bool = False
    apart: bool = False
    last: Hashable = None
    held: dict[str, Held] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.held.values())

    @property
    def idle(self) -> bool:
        return self.up and not self.held

    @property
    def open(self) -> bool:
        """Whether others may join what it has."""
        return self.up and not self.apart

    def take(self, entry: Entry, *, apart: bool) -> None:
        request = entry.request
        self.held[request.request_id] = Held(entry, request.params.num_outputs)
        self.apart, self.last = apart, entry.key

    def leave(self, request: DiffusionRequest) -> None:
        if self.held.pop(request.request_id, None) is not None and not self.held:
            self.apart = False

    def row_done(self, request: DiffusionRequest) -> None:
        held = self.held.get(request.request_id)
        if held is not None and held.rows > 1:
            held.rows -= 1

    def clear(self) -> None:
        self.up = self.apart = False
        self.held.clear()

    def cost_with(self, entry: Entry) -> int:
        """Of one step of everything on this rank, in rows, if `entry` joined."""
        keys = {id(one.entry) if one.entry.request.alone else one.entry.key for one in self.held.values()}
        keys.add(id(entry) if entry.request.alone else entry.key)
        return GROUP_ROWS * len(keys) + self.rows + entry.request.params.num_outputs

    def would_preempt(self, entry: Entry) -> bool:
        """Whether the rank, though full, begins it at once in the place of a row of lower priority and rank."""
        if self.rows >= 2 * self.max_rows:
            return False
        return any(
            one.entry.request.priority < entry.request.priority and one.entry.rank > entry.rank
            for one in self.held.values()
        )


def cheapest(seats: Sequence[Seat], entry: Entry) -> Seat | None:
    """Where `entry` can begin at the least cost, None if nowhere. An idle rank always costs less than a busy one."""
    able = [seat for seat in seats if seat.rows < seat.max_rows] or [
        seat for seat in seats if seat.would_preempt(entry)
    ]
    return min(able, key=lambda seat: (bool(seat.held), seat.cost_with(entry), seat.rank), default=None)

"""Requests that wait, in order of rank: priority, plus one level for every `ageing_s` waited.

All age at the same rate, so the order of two requests never changes and a sorted list is enough.
"""

from bisect import insort
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import count

from .batch_key import BatchKey
from .request import DiffusionRequest, Row


@dataclass(eq=False, slots=True)
class Entry:
    """A waiting request: `next_row` rows of it have been planned, `passed` batches have overtaken it."""

    request: DiffusionRequest
    key: BatchKey
    arrival_s: float
    rank: tuple[float, int]
    next_row: int = 0
    passed: int = 0

    @property
    def rows_left(self) -> int:
        return self.request.params.num_outputs - self.next_row

    @property
    def group(self) -> Hashable:
        """Entries of equal group may share a batch."""
        return id(self) if self.request.alone else self.key

    def take(self, num_rows: int) -> tuple[Row, ...]:
        first = self.next_row
        self.next_row += num_rows
        return tuple(Row(self.request, index) for index in range(first, self.next_row))


class Waiting:
    """Entries with rows left, best rank first. One thread only."""

    def __init__(self, ageing_s: float) -> None:
        self._ageing_s = ageing_s
        self._entries: list[Entry] = []
        self._sequence = count()

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    @property
    def has_any(self) -> bool:
        return bool(self._entries)

    @property
    def rows(self) -> int:
        return sum(entry.rows_left for entry in self._entries)

    def add(self, request: DiffusionRequest, key: BatchKey, now: float) -> None:
        rank = (now / self._ageing_s - request.priority, next(self._sequence))
        insort(self._entries, Entry(request, key, now, rank), key=lambda entry: entry.rank)

    def remove(self, request: DiffusionRequest) -> None:
        self._entries = [entry for entry in self._entries if entry.request is not request]

    def forget_planned(self) -> None:
        """Drop the entries whose last row has been taken."""
        self._entries = [entry for entry in self._entries if entry.rows_left]

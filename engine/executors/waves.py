"""Request mode: how compatible requests become waves for idle ranks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..scheduler import SchedulerPolicy
from ..waiting import Entry


@dataclass(slots=True)
class Group:
    """Waiting requests that may share a batch of at most `cap` rows; `alone`: one that waits for nobody."""

    cap: int
    alone: bool
    overdue: bool = False
    entries: list[Entry] = field(default_factory=list)

    @property
    def sizes(self) -> list[int]:
        return [entry.rows_left for entry in self.entries]

    def ready_s(self, policy: SchedulerPolicy) -> float:
        """When to run: at once when full or overdue, else when its arrivals have dried up or the wait is over."""
        if self.alone or self.overdue or sum(self.sizes) >= self.cap:
            return 0.0
        arrivals = [entry.arrival_s for entry in self.entries]
        return min(min(arrivals) + policy.wait_s, max(arrivals) + policy.stable_window_s)


def allot(groups: Sequence[Sequence[int]], num_ranks: int) -> list[int]:
    """How many ranks each group of requests (by their rows) gets: one each, the rest where most rows share a rank."""
    shares = [1] * len(groups)
    for _ in range(num_ranks - len(groups)):
        splittable = [i for i, sizes in enumerate(groups) if shares[i] < len(sizes)]
        if not splittable:
            break
        shares[max(splittable, key=lambda i: sum(groups[i]) / shares[i])] += 1
    return shares


def deal(entries: Sequence[Entry], num_ranks: int, cap: int) -> list[list[Entry]]:
    """Best first, each to the emptiest wave. A request larger than a batch has a wave to itself.

    Who does not fit waits, and so do all behind.
    """
    waves: list[list[Entry]] = [[] for _ in range(num_ranks)]
    for entry in entries:
        wave = min(waves, key=lambda wave: sum(one.rows_left for one in wave))
        rows = sum(one.rows_left for one in wave)
        if wave and rows + entry.rows_left > cap:
            break
        wave.append(entry)
    return [wave for wave in waves if wave]

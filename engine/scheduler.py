"""Request mode: which rows run next. Pure: time is an argument, nothing here blocks, logs or knows of tensors."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import islice

from .batch import Batch
from .batch_key import BatchKey
from .request import DiffusionRequest
from .waiting import Entry, Waiting

MAX_STABLE_WINDOW_S = 0.05
#: Waiting requests that are looked at to say why they are not in a batch.
EXPLAINED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerPolicy:
    """The knobs of `EngineConfig` that concern the order of requests, in seconds and rows, and of step mode alone how
    many rows may be under way for each row of a forward, and for how many forwards one may be left out.
    """

    max_rows: int
    wait_s: float = 0.02
    look_ahead: int = 128
    max_passes: int = 8
    places_a_row: int = 2
    max_unserved: int = 32
    ageing_s: float = 10.0

    @property
    def stable_window_s(self) -> float:
        """A group to which nothing was added for so long is taken as complete."""
        return min(MAX_STABLE_WINDOW_S, self.wait_s / 5)


@dataclass(slots=True)
class Group:
    """A batch in the making: members in order of rank with the rows that each would get, at most `cap` together."""

    cap: int
    members: list[tuple[Entry, int]] = field(default_factory=list)
    full: bool = False

    @property
    def rows(self) -> int:
        return sum(num_rows for _, num_rows in self.members)

    def offer(self, entry: Entry) -> None:
        """A first member too large for one batch gets a full one; a later one that does not fit stays behind."""
        wanted = 1 if entry.request.params.exact else entry.rows_left
        num_rows = wanted if self.members else min(wanted, self.cap)
        if self.rows + num_rows <= self.cap:
            self.members.append((entry, num_rows))
            self.full = self.full or self.rows == self.cap or entry.request.alone
        else:
            self.full = True

    def ready_s(self, policy: SchedulerPolicy) -> float:
        """When to run: at once when full or overdue, else when its arrivals have dried up or the wait is over."""
        if self.full or self.members[0][0].passed >= policy.max_passes:
            return 0.0
        arrivals = [entry.arrival_s for entry, _ in self.members]
        return min(min(arrivals) + policy.wait_s, max(arrivals) + policy.stable_window_s)


class Scheduler:
    """The waiting requests and the rule by which they leave. One thread only."""

    def __init__(self, policy: SchedulerPolicy) -> None:
        self._policy = policy
        self._waiting = Waiting(policy.ageing_s)
        self._max_rows = policy.max_rows
        self._row_bounds: dict[Hashable, int] = {}

    @property
    def waiting_rows(self) -> int:
        return self._waiting.rows

    @property
    def max_rows_in_all(self) -> int:
        """The bound of any batch, whatever its rows are."""
        return self._max_rows

    def submit(self, request: DiffusionRequest, key: BatchKey, now: float) -> None:
        self._waiting.add(request, key, now)

    def remove(self, request: DiffusionRequest) -> None:
        """Forget what still waits of a request; rows that were planned are not this class's any more."""
        self._waiting.remove(request)

    def plan(self, now: float) -> Batch | None:
        """The batch to run now, or None when nothing should run yet. Its rows leave the queue."""
        for group in self._groups():
            if group.ready_s(self._policy) <= now:
                return self._leave(group)
        return None

    def wake_s(self) -> float | None:
        """The time at which `plan` gives a batch if nothing else happens; None when nothing waits."""
        return min((group.ready_s(self._policy) for group in self._groups()), default=None)

    def differences(self, key: BatchKey) -> dict[str, None]:
        """In what the first of those that still wait differ from a batch of this key."""
        waiting = [entry for entry in islice(self._waiting, EXPLAINED) if not entry.request.alone]
        return dict.fromkeys(name for entry in waiting for name in key.differences(entry.key))

    def limit(self, max_rows: int) -> None:
        """Lower the bound of every batch."""
        self._max_rows = min(self._max_rows, max_rows)

    def bound(self, key: BatchKey, max_rows: int) -> None:
        """Learn that more than `max_rows` rows of this key's footprint do not fit the device."""
        self._row_bounds[key.footprint] = max(1, min(self.max_rows(key), max_rows))

    def max_rows(self, key: BatchKey) -> int:
        return min(self._max_rows, self._row_bounds.get(key.footprint, self._max_rows))

    def _groups(self) -> list[Group]:
        """Batches that may run, best first. An entry passed `max_passes` times is a barrier to all behind it."""
        groups: dict[Hashable, Group] = {}
        for entry in islice(self._waiting, self._policy.look_ahead):
            groups.setdefault(entry.group, Group(self.max_rows(entry.key))).offer(entry)
            if entry.passed >= self._policy.max_passes:
                break
        return list(groups.values())

    def _leave(self, group: Group) -> Batch:
        members = {id(entry) for entry, _ in group.members}
        last = max(entry.rank for entry, _ in group.members)
        for entry in self._waiting:
            if entry.rank < last and id(entry) not in members:
                entry.passed += 1
        rows = tuple(row for entry, num_rows in group.members for row in entry.take(num_rows))
        self._waiting.forget_planned()
        return Batch(group.members[0][0].key, rows)

"""Step mode: which rows are under way, and which of them the next forward serves. Pure, as the other scheduler is.

Rows join and leave between two model calls. A forward serves up to `max_rows` of them and twice as many have a place,
as among more rows more are alike. A row of higher priority may take the place of another, which is then held where it
stands and goes on later, no step lost.

The next forward is that of the group which has most to gain from it: rows near their end count most, for what Smith's
rule says of jobs one after the other (least work left for its weight first has the least mean latency; W. E. Smith,
Naval Research Logistics Quarterly 3, 1956) holds for groups whose rows end at different times nearly as well. Nobody is
left out for more than `max_unserved` forwards and one for each row that is overdue as well.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from .batch_key import BatchKey
from .request import DiffusionRequest, Row
from .result import Stage
from .scheduler import SchedulerPolicy
from .waiting import Entry, Waiting


@dataclass(eq=False, slots=True)
class Slot:
    """A row under way, standing before a model call of `stage`. Slots of equal `key` may share that call's forward.

    `served` is the number of the last forward that it took part in, at first of the last one before it came. `left` is
    how many denoise steps it still needs. `apart`: a forward with others failed, the next is its own. `resumed`: it
    goes on from a checkpoint. `waits`: it has its part of the model call, and others of its gang have not. `mates`: the
    gang with which it began, itself included.
    """

    entry: Entry
    row: Row
    served: int = 0
    left: int = field(init=False)
    key: Hashable = None
    stage: Stage = "encoding"
    held: bool = False
    apart: bool = False
    resumed: bool = False
    waits: bool = False
    mates: tuple["Slot", ...] = ()
    request: DiffusionRequest = field(init=False)
    footprint: Hashable = field(init=False)

    def __post_init__(self) -> None:
        self.request = self.row.request
        self.footprint = self.entry.key.footprint
        self.left = self.entry.key.num_steps

    @property
    def group(self) -> Hashable:
        return self if self.apart else self.key

    @property
    def gain(self) -> float:
        """What a step of it brings; each level of priority doubles it."""
        return 2.0**self.request.priority / max(1, self.left)


class StepScheduler:
    """The waiting requests, the rows under way, and the rules by which they join and are served. One thread only."""

    def __init__(self, policy: SchedulerPolicy) -> None:
        self._waiting = Waiting(policy.ageing_s)
        self._policy = policy
        self._max_rows = policy.max_rows
        self._group_bounds: dict[Hashable, int] = {}
        self._served = 0
        self._last_stage: Stage = "denoising"
        self.running: list[Slot] = []

    @property
    def waiting_rows(self) -> int:
        return self._waiting.rows

    @property
    def active(self) -> list[Slot]:
        return [slot for slot in self.running if not slot.held]

    @property
    def places(self) -> int:
        """How many rows may be active. Who allows one row to a forward wants one at a time."""
        return self._max_rows if self._max_rows == 1 else self._policy.places_a_row * self._max_rows

    @property
    def max_rows_in_all(self) -> int:
        """The bound of any batch, whatever its rows are."""
        return self._max_rows

    def submit(self, request: DiffusionRequest, key: BatchKey, now: float) -> None:
        self._waiting.add(request, key, now)

    def remove(self, request: DiffusionRequest) -> None:
        """Forget what still waits of a request; rows under way are the runner's to end."""
        self._waiting.remove(request)

    def limit(self, max_rows: int) -> None:
        self._max_rows = min(self._max_rows, max_rows)

    def wake_s(self) -> float | None:
        """Nothing here waits for a time: what can run does so at once."""
        return None

    def bound(self, key: Hashable, max_rows: int) -> None:
        """Learn that more than `max_rows` calls of this key do not fit the device in one forward."""
        self._group_bounds[key] = max(1, min(self._group_bounds.get(key, self._max_rows), max_rows))

    def leave(self, slot: Slot) -> None:
        self.running.remove(slot)

    def join(self) -> list[Slot]:
        """The rows that start now; rows that were held and have a place again go on by themselves.

        Best rank first, but kin of those under way before others (`_next`). A row of a `solo` request runs with nothing
        else under way; while it is the first of those that wait nobody else starts.
        """
        started: list[Slot] = []
        if not self._waiting.has_any and not any(slot.held for slot in self.running):
            return started
        if any(slot.request.solo for slot in self.running):
            return started
        held = [(slot.entry.rank, slot.row.index, slot) for slot in self.running if slot.held]
        for _, _, slot in sorted(held, key=lambda one: one[:2]):
            slot.held = not self._make_room(slot.entry, resuming=True)
        overtaken: dict[int, Entry] = {}
        while (entry := self._next(overtaken)) is not None:
            started += self._start(entry)
        for entry in overtaken.values():
            entry.passed += 1
        if started:
            self._waiting.forget_planned()
        return started

    def choose(self) -> list[Slot]:
        """The members of the next forward, empty when nothing is active.

        After a forward of denoising, calls of other stages have their turn, newcomers first and then the oldest; after
        one of those a denoising group, if there is one. Rows are decoded one at a time as long as others denoise. So
        encoding and decoding never keep running rows for longer than one call.
        """
        groups: dict[Hashable, list[Slot]] = {}
        for slot in self.running:
            if not slot.held and not slot.waits:
                groups.setdefault(slot.group, []).append(slot)
        denoising = [group for group in groups.values() if group[0].stage == "denoising"]
        others = [group for group in groups.values() if group[0].stage != "denoising"]
        if others and (self._last_stage == "denoising" or not denoising):
            members = self._oldest(others)
            members = members[:1] if denoising and members[0].stage == "decoding" else members
        elif denoising:
            members = self._worthiest(denoising)
        else:
            return []
        return self._serve(members)

    def _oldest(self, groups: Sequence[list[Slot]]) -> list[Slot]:
        group = min(groups, key=lambda group: (group[0].stage == "decoding", min(slot.served for slot in group)))
        return self._first(group, lambda slot: (slot.served, slot.entry.rank, slot.row.index))

    def _worthiest(self, groups: Sequence[list[Slot]]) -> list[Slot]:
        """The group whose forward brings most; before that, one in which somebody was left out for too long, or has to
        show whether it fails alone too.
        """
        due = self._served - self._policy.max_unserved
        overdue = [slot for group in groups for slot in group if slot.apart or slot.served < due]
        if overdue:
            first = min(overdue, key=lambda slot: slot.served)
            groups = [group for group in groups if first in group]

        def urgency(slot: Slot) -> tuple[Any, ...]:
            return min(slot.served, due), -slot.gain, slot.entry.rank, slot.row.index

        chosen = [self._first(group, urgency) for group in groups]
        return max(chosen, key=lambda members: sum(slot.gain for slot in members))

    def _first(self, group: list[Slot], urgency: Callable[[Slot], Any]) -> list[Slot]:
        """As many as fit one forward."""
        return sorted(group, key=urgency)[: self._group_bounds.get(group[0].key, self._max_rows)]

    def _serve(self, members: list[Slot]) -> list[Slot]:
        self._served += 1
        self._last_stage = members[0].stage
        for slot in members:
            slot.served = self._served
        return members

    def _next(self, overtaken: dict[int, Entry]) -> Entry | None:
        """Who starts a row now: the first of those that wait, or one behind it that has the footprint of a row under
        way, as few full forwards are done sooner than many small ones.

        Nobody overtakes a higher priority, nor a request that joins have passed `max_passes` times already.
        """
        first = next((entry for entry in self._waiting if entry.rows_left), None)
        if first is None or any(slot.request.solo for slot in self.running):
            return None
        active = self.active
        if first.request.solo:
            return None if self.running else first
        if len(active) >= self.places:
            return first if self._make_room(first) else None
        kin = {slot.entry.key.footprint for slot in active}
        waiting = [entry for entry in islice(self._waiting, self._policy.look_ahead) if entry.rows_left]
        for at, entry in enumerate(waiting):
            if entry.request.solo or entry.request.priority < first.request.priority:
                break
            if entry.key.footprint in kin:
                overtaken |= {id(one): one for one in waiting[:at]}
                return entry
            if entry.passed >= self._policy.max_passes:
                break
        return first

    def _start(self, entry: Entry) -> list[Slot]:
        slots = [Slot(entry, row, self._served) for row in entry.take(1)]
        self.running += slots
        return slots

    def _make_room(self, entry: Entry, *, resuming: bool = False) -> bool:
        """Whether a row of `entry` has a place, that of an active row of lower priority and rank included."""
        active = self.active
        if len(active) < self.places:
            return True
        num_held = len(self.running) - len(active)
        if num_held - resuming >= self._max_rows:
            return False
        lowest = max(active, key=lambda slot: (-slot.request.priority, slot.entry.rank, slot.row.index))
        if lowest.request.priority >= entry.request.priority or lowest.entry.rank <= entry.rank:
            return False
        lowest.held = True
        return True

"""Step mode: one model call at a time for all the rows that can share it; rows join and leave in between.

A row that fails takes nobody along: a forward that fails for several is repeated for each alone, one that does not fit
is repeated in halves. Rows that start together and are equal in all that a pipeline call has one of form a gang: one
call for all of them, as long as nothing happens that concerns one row alone.
"""

from collections.abc import Callable, Hashable, Sequence

from .adapter import OpensGangs, Output, PipelineAdapter, RowCall
from .batch import Batch
from .checkpoint import Checkpoint, RowState, fingerprint
from .company import alike, apart
from .errors import OutOfMemory, failure
from .finisher import Finisher
from .ledger import Account, Ledger
from .pace import Pace
from .pending import Pending, settled
from .request import DiffusionRequest
from .result import Started, Terminal, media_from, media_parts
from .row_hook import RowHook
from .stats import Counters, RunningGroup
from .step_scheduler import Slot, StepScheduler


class StepRunner:
    """Moves rows forward on an adapter. Device thread only."""

    def __init__(
        self,
        adapter: PipelineAdapter,
        ledger: Ledger,
        scheduler: StepScheduler,
        counters: Counters,
        pace: Pace,
        clock: Callable[[], float],
        model: str,
        finisher: Finisher,
    ) -> None:
        """`model` tells models apart in checkpoints."""
        self._model = model
        self._finisher = finisher
        self._adapter = adapter
        self._ledger = ledger
        self._scheduler = scheduler
        self._counters = counters
        self._clock = clock
        self._pace = pace
        self._calls: dict[Slot, RowCall] = {}
        #: whose gang may have gone on because a mate left
        self._stirred: list[Slot] = []

    def work(self) -> bool:
        """Let rows leave and join, then one forward. Returns whether there was one. Raises DeviceLost."""
        while self._stirred:
            self._settle(self._stirred.pop())
        while started := self._scheduler.join():  # again, since those that end while they open make room for others
            self._open(started)
        for slot in [slot for slot in self._scheduler.running if slot.held and slot.mates]:
            self._break_up(slot.mates)
        group = self._scheduler.choose()
        self._counters.running_rows = len(self._calls)
        if group:
            self._forward(group)
        return bool(group)

    def end(self, account: Account, event: Terminal) -> None:
        """The one way in which the device thread ends a request: waiting, under way or held, at a pause too."""
        self._scheduler.remove(account.request)
        account.enter_stage(None, self._clock())
        self._ledger.end(account, account.with_metrics(event, self._clock()))
        for slot in [slot for slot in self._calls if slot.request is account.request]:
            self._leave(slot)

    def export(self, request: DiffusionRequest) -> Checkpoint | None:
        """All that is done of an open request, None if nothing is. Raises TypeError for a state that cannot leave."""
        account = self._ledger.of(request)
        if account is None:
            return None
        before = self._resumable(request, account)  # rows that have not gone on here are still as far as they were
        rows = {} if before is None else {row.index: row for row in before.rows}
        done = {} if before is None else dict(before.done)
        states = [call.state() for slot, call in self._calls.items() if slot.request is request]
        rows |= {state.index: state for state in states if state is not None}
        done |= {index: media_parts(media) for index, media in account.media.items()}
        left = tuple(row for index, row in sorted(rows.items()) if index not in done)
        return Checkpoint(fingerprint(request, self._model), left, done) if left or done else None

    def close(self) -> None:
        """End every call where it is held."""
        for slot in list(self._calls):
            self._leave(slot)

    def _open(self, slots: Sequence[Slot]) -> None:
        gangs: dict[Hashable, list[Slot]] = {}
        has_gangs = isinstance(self._adapter, OpensGangs) and self._adapter.has_gangs
        for slot in slots:
            account = self._started(slot)
            if account is None:
                continue
            resume = self._resumable(slot.request, account)
            if resume is not None and slot.row.index in resume.done:
                self._scheduler.leave(slot)
                self._deliver(slot, account, Output(media_from(resume.done[slot.row.index])))
            elif has_gangs and resume is None and not slot.request.alone:
                gangs.setdefault((slot.entry.key, slot.request.priority), []).append(slot)
            else:
                self._begin(slot, account, None if resume is None else resume.row(slot.row.index))
        for gang in gangs.values():
            size = self._scheduler.max_rows_in_all
            for first in range(0, len(gang), size):
                self._begin_gang(gang[first : first + size])

    def _started(self, slot: Slot) -> Account | None:
        """The account of a row that has a place now; None, and the place is free, if nobody waits for it any more."""
        account = self._ledger.of(slot.request)
        if account is None:
            self._scheduler.leave(slot)
            return None
        if account.started_s is None:
            if (late := account.too_late(self._pace.least_s(slot.entry.key), self._clock())) is not None:
                self._scheduler.leave(slot)
                self.end(account, late)
                return None
            account.started_s = self._clock()
            num_rows = min(len(self._scheduler.active), self._scheduler.max_rows_in_all)
            account.stream.put(Started(slot.request.request_id, num_rows))
            self._recall(slot, account)
        return account

    def _recall(self, slot: Slot, account: Account) -> None:
        """What is done of a request that goes on counts from the start, so that its progress never falls."""
        resume = self._resumable(slot.request, account)
        if resume is not None:
            account.row_steps |= {row.index: row.step for row in resume.rows}
            account.row_steps |= dict.fromkeys(resume.done, slot.entry.key.num_steps)

    def _begin_gang(self, slots: Sequence[Slot]) -> None:
        assert isinstance(self._adapter, OpensGangs)
        accounts = [(slot, account) for slot in slots if (account := self._started(slot)) is not None]
        began = self._clock()
        calls: Sequence[RowCall] = ()
        try:
            if len(accounts) > 1:
                hooks = [RowHook(slot.row, account, self._clock) for slot, account in accounts]
                batch = Batch(slots[0].entry.key, tuple(slot.row for slot, _ in accounts))
                calls = self._adapter.open_gang(batch, hooks)
        except Exception:
            self._adapter.probe()
        for _, account in accounts:
            account.device_s += (self._clock() - began) / len(accounts)
        if not calls:  # whose fault it is shows when each is alone
            for slot, account in accounts:
                if self._ledger.of(slot.request) is account:
                    self._begin(slot, account, None)
                else:
                    self._scheduler.leave(slot)
            return
        for (slot, account), call in zip(accounts, calls, strict=True):
            self._calls[slot], slot.mates = call, tuple(slot for slot, _ in accounts)
            self._compare(slot, account)
        for slot, _ in accounts:
            self._settle(slot)

    def _begin(self, slot: Slot, account: Account, resume: RowState | None, since: int = 0) -> None:
        slot.resumed = resume is not None
        slot.mates, slot.waits = (), False
        began = self._clock()
        try:
            call = self._adapter.open(
                Batch(slot.entry.key, (slot.row,)),
                RowHook(slot.row, account, self._clock, since),
                alone=slot.request.alone,
                resume=resume,
            )
        except Exception as error:
            account.device_s += self._clock() - began
            self._scheduler.leave(slot)
            self._fail(account, error)
            return
        account.device_s += self._clock() - began
        self._calls[slot] = call
        self._compare(slot, account)
        self._settle(slot)

    def _break_up(self, mates: Sequence[Slot]) -> None:
        """Of a gang, let each row go on by itself from where it stands: one of them has to wait for its place."""
        slots = [slot for slot in mates if slot in self._calls]
        try:
            states = {slot: self._calls[slot].state() for slot in slots}
        except TypeError:  # the others then wait with it
            return
        for slot in sorted(slots, key=lambda slot: not slot.waits):  # or the gang would go on with those that are left
            self._calls.pop(slot).abort()
        for slot, state in states.items():
            account = self._ledger.of(slot.request)
            assert account is not None, "its rows would have left with it"
            self._begin(slot, account, state, 0 if state is None else state.step)

    def _compare(self, slot: Slot, account: Account) -> None:
        """Note in what it differs from those under way, of what may keep rows from sharing a forward."""
        for other in self._scheduler.running:
            mate = self._ledger.of(other.request)
            if mate is None or mate is account or slot.request.alone or other.request.alone:
                continue
            differences = apart(slot.entry.key, other.entry.key)
            account.apart |= differences
            mate.apart |= differences

    def groups(self) -> tuple[RunningGroup, ...]:
        """What is under way. From any thread."""
        return alike(slot.entry.key for slot in tuple(self._scheduler.running))

    def _resumable(self, request: DiffusionRequest, account: Account) -> Checkpoint | None:
        resume = request.resume
        if resume is None or resume.fingerprint == fingerprint(request, self._model):
            return resume
        account.warnings["began anew: its checkpoint is of another request or model"] = None
        return None

    def _forward(self, group: list[Slot]) -> None:
        began, took_part = self._clock(), False
        try:
            self._adapter.advance([self._calls[slot] for slot in group])
        except OutOfMemory as error:
            if len(group) > 1:
                self._scheduler.bound(group[0].key, (len(group) + 1) // 2)
            else:
                self._calls[group[0]].fail(error)
        except Exception as error:
            self._adapter.probe()
            if len(group) == 1:
                self._calls[group[0]].fail(error)
            for slot in group:
                slot.apart = True
        else:
            took_part = self._note(group, self._clock() - began)
        self._charge(group, self._clock() - began, took_part=took_part)
        if any(slot.mates for slot in group):
            group = list(dict.fromkeys([*group, *(mate for slot in group for mate in slot.mates)]))
        for slot in group:
            self._settle(slot)

    def _note(self, group: list[Slot], seconds: float) -> bool:
        """Of a forward that did not fail; whether it was one of denoising."""
        for slot in group:
            slot.apart = False
        if group[0].stage != "denoising":
            return False
        self._counters.batch_started(len(group))
        self._counters.step_done(1000 * seconds)
        self._pace.note_footprints({slot.footprint for slot in group}, seconds)
        return True

    def _charge(self, group: list[Slot], seconds: float, *, took_part: bool) -> None:
        share_s = seconds / len(group)
        company = [slot.request.request_id for slot in group]
        for slot in group:
            account = self._ledger.of(slot.request)
            if account is not None:
                account.device_s += share_s
                if took_part:
                    account.took_part(company)

    def _settle(self, slot: Slot) -> None:
        """After its call has gone on: note where it is held now, or deliver what came out."""
        call = self._calls.get(slot)
        if call is None:  # a row of the same request has just ended it
            return
        outcome = call.outcome
        if outcome is None:
            slot.key, slot.stage, slot.waits = call.key, call.stage, call.waits
            account = self._ledger.of(slot.request)
            if account is not None:
                slot.left = slot.entry.key.num_steps - account.row_steps.get(slot.row.index, 0)
            return
        if slot.resumed:  # it must be known now whether it has to begin anew
            outcome = settled(outcome)
        account = self._ledger.of(slot.request)
        if account is not None and isinstance(outcome, Exception) and (slot.resumed or slot.mates):
            self._begin_anew(slot, account, outcome)
            return
        self._leave(slot)
        if account is None:
            return
        if isinstance(outcome, Output | Pending):
            self._counters.rows_done += 1
            self._deliver(slot, account, outcome)
        else:
            self._fail(account, outcome)

    def _begin_anew(self, slot: Slot, account: Account, error: Exception) -> None:
        """A checkpoint or a gang saves time and decides nothing: whatever a row fails of, it is tried once without."""
        self._adapter.probe()
        if slot.resumed:
            account.warnings[f"began anew: its checkpoint did not work ({error})"[:200]] = None
        self._calls.pop(slot).abort()
        self._begin(slot, account, None)

    def _fail(self, account: Account, error: Exception) -> None:
        """An error of the row's own code may be the first that tells of a lost device. Raises DeviceLost."""
        self._adapter.probe()
        self.end(account, failure(account.request.request_id, error))

    def _deliver(self, slot: Slot, account: Account, output: Output | Pending) -> None:
        account.out.add(slot.row.index)
        if len(account.out) == account.request.params.num_outputs:
            account.enter_stage(None, self._clock())
        self._finisher.take(account, slot.row, output)

    def _leave(self, slot: Slot) -> None:
        self._scheduler.leave(slot)
        self._calls.pop(slot).abort()
        self._stirred += [mate for mate in slot.mates if mate.waits]

"""Step mode: one model call at a time for all the rows that can share it; rows join and leave in between.

A row that fails takes nobody along: a forward that fails for several is repeated for each alone, one that does not fit
is repeated in halves.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from .adapter import Output, PipelineAdapter, PreviewRow, RowCall
from .batch import Batch
from .batch_key import BatchKey
from .checkpoint import Checkpoint, RowState, fingerprint
from .errors import OutOfMemory, failure
from .finisher import Finisher
from .ledger import Account, Ledger
from .pace import Pace
from .pending import Pending, settled
from .request import DiffusionRequest, Row
from .result import Preview, Progress, Stage, Started, Terminal, media_from, media_parts
from .stats import Counters, RunningGroup
from .step_scheduler import Slot, StepScheduler

#: Parameters that can show in a call of the denoiser. Steps, seed, strength and noise scheduler never do, guidance only
#: by whether there is any.
FORWARD_FIELDS = ("height", "width", "num_frames", "duration_s", "image_size", "loras")


class RowHook:
    """The step hook of one row's pipeline call: tells progress, and keeps the time of the request's stages."""

    def __init__(self, row: Row, account: Account, clock: Callable[[], float]) -> None:
        self._row = row
        self._account = account
        self._clock = clock
        self._told: Progress | None = None

    def __call__(self, stage: Stage, step: int, num_steps: int, preview: PreviewRow | None = None) -> None:
        account = self._account
        progress = account.row_progress(self._row, stage, step, num_steps)
        account.enter_stage(progress.stage, self._clock())
        if progress != self._told:
            account.stream.put(progress)
            self._told = progress
        every = account.request.params.preview_every
        due = every and step and step % every == 0 and stage == "denoising"
        if preview is not None and due and self._is_first_unfinished():
            account.stream.put(Preview(account.request.request_id, step, preview(0)))

    def _is_first_unfinished(self) -> bool:
        return self._row.index == min(index for index in self._account.row_steps if index not in self._account.out)


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

    def work(self) -> bool:
        """Let rows leave and join, then one forward. Returns whether there was one. Raises DeviceLost."""
        while started := self._scheduler.join():  # again, since those that end while they open make room for others
            for slot in started:
                self._open(slot)
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

    def _open(self, slot: Slot) -> None:
        account = self._ledger.of(slot.request)
        if account is None:
            self._scheduler.leave(slot)
            return
        if account.started_s is None:
            if (late := account.too_late(self._pace.least_s(slot.entry.key), self._clock())) is not None:
                self._scheduler.leave(slot)
                self.end(account, late)
                return
            account.started_s = self._clock()
            account.stream.put(Started(slot.request.request_id, len(self._scheduler.active)))
            self._recall(slot, account)
        resume = self._resumable(slot.request, account)
        if resume is not None and slot.row.index in resume.done:
            self._scheduler.leave(slot)
            self._deliver(slot, account, Output(media_from(resume.done[slot.row.index])))
            return
        self._begin(slot, account, None if resume is None else resume.row(slot.row.index))

    def _recall(self, slot: Slot, account: Account) -> None:
        """What is done of a request that goes on counts from the start, so that its progress never falls."""
        resume = self._resumable(slot.request, account)
        if resume is not None:
            account.row_steps |= {row.index: row.step for row in resume.rows}
            account.row_steps |= dict.fromkeys(resume.done, slot.entry.key.num_steps)

    def _begin(self, slot: Slot, account: Account, resume: RowState | None) -> None:
        slot.resumed = resume is not None
        began = self._clock()
        try:
            call = self._adapter.open(
                Batch(slot.entry.key, (slot.row,)),
                RowHook(slot.row, account, self._clock),
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

    def _compare(self, slot: Slot, account: Account) -> None:
        """Note in what it differs from those under way, of what may keep rows from sharing a forward."""
        for other in self._scheduler.running:
            mate = self._ledger.of(other.request)
            if mate is None or mate is account or slot.request.alone or other.request.alone:
                continue
            mine, its = _shown(slot.entry.key), _shown(other.entry.key)
            differences = dict.fromkeys(name for name in mine if mine[name] != its[name])
            account.apart |= differences
            mate.apart |= differences

    def groups(self) -> tuple[RunningGroup, ...]:
        """What is under way. From any thread."""
        counts = Counter(slot.entry.key for slot in tuple(self._scheduler.running))
        merged: list[RunningGroup] = []
        for key, rows in counts.items():
            shown = _shown(key)
            mates = [group for group in merged if group.key == shown]
            merged = [group for group in merged if group not in mates]
            merged.append(RunningGroup(rows + sum(group.rows for group in mates), shown))
        return tuple(merged)

    def _resumable(self, request: DiffusionRequest, account: Account) -> Checkpoint | None:
        resume = request.resume
        if resume is None or resume.fingerprint == fingerprint(request, self._model):
            return resume
        account.warnings["began anew: its checkpoint is of another request or model"] = None
        return None

    def _forward(self, group: list[Slot]) -> None:
        began = self._clock()
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
            self._count(group, began)
            for slot in group:
                slot.apart = False
        self._charge(group, self._clock() - began)
        for slot in group:
            self._settle(slot)

    def _count(self, group: list[Slot], began: float) -> None:
        if group[0].stage != "denoising":
            return
        self._counters.batch_started(len(group))
        seconds = self._clock() - began
        self._counters.step_done(1000 * seconds)
        for slot in group:
            self._pace.note(slot.entry.key, seconds)
            account = self._ledger.of(slot.request)
            if account is not None:
                account.took_part(len(group))

    def _charge(self, group: list[Slot], seconds: float) -> None:
        for slot in group:
            account = self._ledger.of(slot.request)
            if account is not None:
                account.device_s += seconds / len(group)

    def _settle(self, slot: Slot) -> None:
        """After its call has gone on: note where it is held now, or deliver what came out."""
        call = self._calls.get(slot)
        if call is None:  # a row of the same request has just ended it
            return
        outcome = call.outcome
        if outcome is None:
            slot.key, slot.stage = call.key, call.stage
            return
        if slot.resumed:  # it must be known now whether it has to begin anew
            outcome = settled(outcome)
        account = self._ledger.of(slot.request)
        if account is not None and isinstance(outcome, Exception) and slot.resumed:
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
        """A checkpoint saves time and decides nothing: whatever a resumed row fails of, it is tried once without."""
        self._adapter.probe()
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


def _shown(key: BatchKey) -> dict[str, Any]:
    every = asdict(key)
    return {name: every[name] for name in FORWARD_FIELDS} | {"guided": key.guided}

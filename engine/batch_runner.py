"""Request mode: runs one planned batch to the end of all its requests; each fails, if it must, for its own reasons.

Out of memory: the batch is run again in halves, and the bound is learned. Any other error: its requests are run again
one at a time, once. A row that comes out unusable fails its own request.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict

from .adapter import Output, PipelineAdapter, PreviewRow, RowOutcome
from .batch import Batch
from .errors import BatchAborted, ModelError, OutOfMemory, failure
from .finisher import Finisher
from .ledger import Account, Ledger
from .pace import Pace
from .pending import Pending
from .result import Preview, Stage, Started, Terminal
from .scheduler import Scheduler
from .stats import Counters, RunningGroup


class Attempt:
    """One pipeline call under way. It is the call's step hook: serves the inbox, tells progress, keeps the time."""

    def __init__(
        self,
        batch: Batch,
        ledger: Ledger,
        counters: Counters,
        pace: Pace,
        clock: Callable[[], float],
        poll: Callable[[], None],
    ) -> None:
        self._batch = batch
        self._ledger = ledger
        self._counters = counters
        self._pace = pace
        self._clock = clock
        self._poll = poll
        self._stage: Stage = "encoding"
        self._stage_s: dict[Stage, float] = {}
        self._lap_s = self._start_s = clock()
        self.num_steps = 0

    def leave(self, account: Account) -> None:
        """Charge a request that ends while the call goes on."""
        num_rows = len(self._batch.rows_of(account.request))
        if num_rows:
            self._lap()
            self._charge(account, num_rows)
            account.took_part([row.request.request_id for row in self._batch.rows])

    def __call__(self, stage: Stage, step: int, num_steps: int, preview: PreviewRow | None = None) -> None:
        elapsed_s = self._lap()
        if self._stage == stage == "denoising":
            self._counters.step_done(1000 * elapsed_s)
            self._pace.note(self._batch.key, elapsed_s)
        self._stage, self.num_steps = stage, num_steps
        self._poll()
        accounts = self._accounts()
        if not accounts:
            raise BatchAborted
        for account, num_rows in accounts:
            account.stream.put(account.progress(stage, step, num_steps, num_rows))
            if preview is not None and stage == "denoising":
                self._preview(account, step, preview)

    def finish(self) -> None:
        """Share out the time, whatever became of the call."""
        self._lap()
        for account, num_rows in self._accounts():
            self._charge(account, num_rows)

    def _charge(self, account: Account, num_rows: int) -> None:
        account.device_s += (self._lap_s - self._start_s) * num_rows / len(self._batch.rows)
        for stage, stage_s in self._stage_s.items():
            account.stage_s[stage] = account.stage_s.get(stage, 0.0) + stage_s

    def _lap(self) -> float:
        now = self._clock()
        elapsed_s, self._lap_s = now - self._lap_s, now
        self._stage_s[self._stage] = self._stage_s.get(self._stage, 0.0) + elapsed_s
        return elapsed_s

    def _accounts(self) -> list[tuple[Account, int]]:
        accounts = ((self._ledger.of(request), request) for request in self._batch.requests)
        return [(account, len(self._batch.rows_of(request))) for account, request in accounts if account is not None]

    def _preview(self, account: Account, step: int, preview: PreviewRow) -> None:
        every = account.request.params.preview_every
        if every and step and step % every == 0:
            index = next(i for i, row in enumerate(self._batch.rows) if row.request is account.request)
            account.stream.put(Preview(account.request.request_id, step, preview(index)))


class BatchRunner:
    """Runs batches on an adapter. Device thread only."""

    def __init__(
        self,
        adapter: PipelineAdapter,
        ledger: Ledger,
        scheduler: Scheduler,
        counters: Counters,
        pace: Pace,
        clock: Callable[[], float],
        poll: Callable[[], None],
        finisher: Finisher,
    ) -> None:
        self._finisher = finisher
        self._adapter = adapter
        self._ledger = ledger
        self._scheduler = scheduler
        self._counters = counters
        self._pace = pace
        self._clock = clock
        self._poll = poll
        #: The call that is under way, and what runs in it.
        self._attempt_now: Attempt | None = None
        self.running: tuple[Batch, ...] = ()

    def work(self) -> bool:
        """Run the batch that is due, if one is. Returns whether there was one. Raises DeviceLost."""
        batch = self._scheduler.plan(self._clock())
        if batch is not None:
            self.run(batch)
        return batch is not None

    def groups(self) -> tuple[RunningGroup, ...]:
        """What is under way. From any thread."""
        return tuple(RunningGroup(len(batch.rows), asdict(batch.key)) for batch in self.running)

    def close(self) -> None:
        """Nothing is under way between two batches."""

    def run(self, batch: Batch) -> None:
        """Returns when every row has been delivered or given up. Raises DeviceLost when the device is gone."""
        pending = deque([batch])
        while pending:
            alive = self._alive(pending.popleft())
            if alive is not None:
                pending.extendleft(reversed(self._attempt(alive)))
        self._counters.running_rows = 0
        self.running = ()

    def end(self, account: Account, event: Terminal) -> None:
        """The one way in which the device thread ends a request, waiting or running."""
        self._scheduler.remove(account.request)
        if self._attempt_now is not None:
            self._attempt_now.leave(account)
        self._ledger.end(account, account.with_metrics(event, self._clock()))

    def _alive(self, batch: Batch) -> Batch | None:
        now, least_s = self._clock(), self._pace.least_s(batch.key)
        for request in batch.requests:
            account = self._ledger.of(request)
            if account is not None and account.started_s is None:
                late = account.too_late(least_s, now)
                if late is not None:
                    self.end(account, late)
        rows = tuple(row for row in batch.rows if self._ledger.of(row.request) is not None)
        return Batch(batch.key, rows) if rows else None

    def _attempt(self, batch: Batch) -> Sequence[Batch]:
        """Run once; returns what has to be run again."""
        self._start(batch)
        attempt = Attempt(batch, self._ledger, self._counters, self._pace, self._clock, self._poll)
        self._attempt_now = attempt
        try:
            outcomes = self._adapter.run(batch, attempt)
            assert len(outcomes) == len(batch.rows)
        except BatchAborted:
            return ()
        except OutOfMemory as error:
            return self._split(batch, error)
        except Exception as error:
            return self._isolate(batch, error)
        finally:
            self._attempt_now = None
            attempt.finish()
        self._deliver(batch, outcomes, attempt.num_steps)
        return ()

    def _start(self, batch: Batch) -> None:
        self._counters.batch_started(len(batch.rows))
        self._counters.running_rows = len(batch.rows)
        self.running = (batch,)
        apart = self._scheduler.differences(batch.key)
        for request in batch.requests:
            account = self._ledger.of(request)
            if account is not None:
                account.apart |= apart
            if account is not None and account.started_s is None:
                account.started_s = self._clock()
                account.stream.put(Started(request.request_id, len(batch.rows)))

    def _split(self, batch: Batch, error: OutOfMemory) -> Sequence[Batch]:
        if len(batch.rows) == 1:
            return self._fail(batch, error)
        first, second = batch.halves()
        self._scheduler.bound(batch.key, len(first.rows))
        return first, second

    def _isolate(self, batch: Batch, error: Exception) -> Sequence[Batch]:
        self._adapter.probe()
        return batch.by_request() if len(batch.requests) > 1 else self._fail(batch, error)

    def _fail(self, batch: Batch, error: Exception) -> Sequence[Batch]:
        for request in batch.requests:
            account = self._ledger.of(request)
            if account is not None:
                self.end(account, failure(request.request_id, error))
        return ()

    def _deliver(self, batch: Batch, outcomes: Sequence[RowOutcome | Pending], num_steps: int) -> None:
        for request in batch.requests:
            account = self._ledger.of(request)
            if account is not None:
                account.steps_before += num_steps
        company = [row.request.request_id for row in batch.rows]
        for row, outcome in zip(batch.rows, outcomes, strict=True):
            account = self._ledger.of(row.request)
            if account is None:
                continue
            if not isinstance(outcome, Output | Pending):  # an adapter from elsewhere may have given nothing
                error = outcome or ModelError(f"output {row.index}: the model gave none")
                self.end(account, failure(row.request.request_id, error))
                continue
            self._counters.rows_done += 1
            account.took_part(company)
            account.out.add(row.index)
            self._finisher.take(account, row, outcome)

"""The open requests and what each has got so far. Opening and ending is safe from any thread, the rest the device's,
but for what is made of finished rows, which is the finisher's.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .adapter import Output
from .errors import QueueFull
from .request import DiffusionRequest, Row
from .result import Aborted, Chunk, Completed, Failed, Media, Metrics, Progress, Stage, Terminal
from .stream import OutputStream

#: Of those that a request shared batches with, so many are named.
MAX_MATES = 8


@dataclass(slots=True, eq=False)
class Account:
    """One open request. Times in seconds of the engine's clock."""

    request: DiffusionRequest
    stream: OutputStream
    submitted_s: float
    started_s: float | None = None
    steps_before: int = 0
    step: int | None = None
    stage: Stage | None = None
    stage_since_s: float = 0.0
    stage_s: dict[Stage, float] = field(default_factory=dict)
    device_s: float = 0.0
    batch_rows: int = 0
    batches: int = 0
    batch_rows_max: int = 0
    apart: dict[str, None] = field(default_factory=dict)
    #: ids of those that shared a batch with it, and all of the last one
    mates: dict[str, None] = field(default_factory=dict)
    company: Sequence[str] = ()
    row_steps: dict[int, int] = field(default_factory=dict)
    #: outputs that the device is done with, and those of them that have been made
    out: set[int] = field(default_factory=set)
    media: dict[int, Media] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)

    @property
    def deadline_s(self) -> float | None:
        wait_s = self.request.deadline_s
        return None if wait_s is None else self.submitted_s + wait_s

    def too_late(self, least_s: float, now: float) -> Failed | None:
        """The end of a request that cannot be done by its deadline even if it begins now and is never kept waiting."""
        if self.deadline_s is None or now + least_s <= self.deadline_s:
            return None
        message = (
            f"it needs {least_s:.1f} s at the least, and its deadline is in {max(0.0, self.deadline_s - now):.1f} s"
        )
        return Failed(self.request.request_id, "deadline_exceeded", message)

    def progress(self, stage: Stage, step: int, num_steps: int, num_rows: int) -> Progress:
        """Count in the steps of the batches that ran before this one and of those to come after its `num_rows` rows."""
        rows_after = self.request.params.num_outputs - len(self.out) - num_rows
        steps_after = -(-rows_after // num_rows) * num_steps
        self.step = self.steps_before + step
        return Progress(self.request.request_id, stage, self.step, self.steps_before + num_steps + steps_after)

    def row_progress(self, row: Row, stage: Stage, step: int, num_steps: int) -> Progress:
        """As `progress`, for rows that go their own ways: the steps of all its outputs, on average and rounded down."""
        request = self.request
        num_outputs = request.params.num_outputs
        self.row_steps[row.index] = step
        if num_outputs == 1:
            self.step = step
        else:
            self.step = sum(self.row_steps.values()) // num_outputs
            stage = "decoding" if self.step == num_steps else "denoising" if self.step else stage
        return Progress(request.request_id, stage, self.step, num_steps)

    def enter_stage(self, stage: Stage | None, now: float) -> None:
        """Time goes to `stage` from now on. For rows that go their own ways; batches share theirs out at the end."""
        if self.stage is not None:
            self.stage_s[self.stage] = self.stage_s.get(self.stage, 0.0) + now - self.stage_since_s
        self.stage, self.stage_since_s = stage, now

    def took_part(self, company: Sequence[str]) -> None:
        """A row of it ran in a batch of rows of these requests."""
        batch_rows = len(company)
        self.batch_rows += batch_rows
        self.batches += 1
        if company != self.company:  # it seldom changes, and this happens at every step of every row
            self.company = company
            self._meet(company)
        if batch_rows > self.batch_rows_max:
            self.batch_rows_max = batch_rows

    def _meet(self, company: Sequence[str]) -> None:
        for name in company:
            if name != self.request.request_id and len(self.mates) < MAX_MATES:
                self.mates[name] = None

    def keep(self, row: Row, output: Output) -> bool:
        """Take an output; True when it was the last. Any other is told at once, as a Chunk. The finisher's thread."""
        num_outputs = self.request.params.num_outputs
        self.media[row.index] = output.media
        self.warnings.update(dict.fromkeys(output.warnings))
        if len(self.media) < num_outputs:
            self.stream.put(Chunk(self.request.request_id, row.index, num_outputs, output.media))
        return len(self.media) == num_outputs

    def completed(self, now: float) -> Completed:
        media = tuple(self.media[index] for index in sorted(self.media))
        return Completed(self.request.request_id, media, self.metrics(now), tuple(self.warnings))

    def with_metrics(self, event: Terminal, now: float) -> Terminal:
        """The event, with what the request took so far if it began and the event does not say."""
        if self.started_s is None or not isinstance(event, Aborted | Failed) or event.metrics is not None:
            return event
        return replace(event, metrics=self.metrics(now))

    def metrics(self, now: float) -> Metrics:
        started_s = now if self.started_s is None else self.started_s
        return Metrics(
            queue_ms=1000 * (started_s - self.submitted_s),
            encode_ms=1000 * self.stage_s.get("encoding", 0.0),
            denoise_ms=1000 * self.stage_s.get("denoising", 0.0),
            decode_ms=1000 * self.stage_s.get("decoding", 0.0),
            total_ms=1000 * (now - self.submitted_s),
            batch_rows_mean=self.batch_rows / max(1, self.batches),
            device_seconds=self.device_s,
            batch_rows_max=self.batch_rows_max,
            apart=tuple(self.apart),
            mates=tuple(self.mates),
        )


class Ledger:
    """Accounts by request id. An id is free again as soon as its request has its terminal event."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._lock = threading.RLock()
        self._accounts: dict[str, Account] = {}

    def open(self, account: Account) -> None:
        """Raises ValueError for an id that is open, QueueFull when too many wait."""
        self.open_all((account,))

    def open_all(self, accounts: Sequence[Account]) -> None:
        """All of them, or none. Raises as `open` does."""
        with self._lock:
            for account in accounts:
                if account.request.request_id in self._accounts:
                    raise ValueError(f"request {account.request.request_id} is active already")
            waiting = sum(account.started_s is None for account in self._accounts.values())
            if waiting + len(accounts) > self._max_waiting:
                raise QueueFull(f"{waiting} requests wait already")
            self._accounts |= {account.request.request_id: account for account in accounts}

    def find(self, request_id: str) -> Account | None:
        return self._accounts.get(request_id)

    def of(self, request: DiffusionRequest) -> Account | None:
        """The account of this very request, None once it has ended."""
        account = self._accounts.get(request.request_id)
        return account if account is not None and account.request is request else None

    def end(self, account: Account, event: Terminal) -> None:
        """Close the account with its terminal event; the first one counts."""
        with self._lock:
            if self.of(account.request) is account:
                del self._accounts[account.request.request_id]
        account.stream.put(event)

    def end_all(self, message: str) -> None:
        """Every open request fails, retryable: the engine is going away, not the request wrong."""
        with self._lock:
            accounts = list(self._accounts.values())
        for account in accounts:
            self.end(account, Failed(account.request.request_id, "internal", message, retryable=True))

    def expired(self, now: float) -> list[Account]:
        with self._lock:
            return [a for a in self._accounts.values() if a.deadline_s is not None and a.deadline_s <= now]

    def next_deadline_s(self) -> float | None:
        with self._lock:
            return min((a.deadline_s for a in self._accounts.values() if a.deadline_s is not None), default=None)

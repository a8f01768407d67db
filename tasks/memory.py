"""The job store in a dict: the contract of `store.lua` for tests and for one process. Thread-safe; nothing survives."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tasks.errors import QueueFull, SafelightError, UnknownDeadLetter
from tasks.job import Job, JobError, JobMetrics, JobStatus, Progress
from tasks.job_codec import encode_each, encode_optional, is_dead_letter, moment
from tasks.memory_looks import MemoryLooks
from tasks.memory_picks import Picks
from tasks.memory_records import Entry, MemoryRecords
from tasks.quotas import NO_QUOTAS, Quotas
from tasks.store import (
    Claimed,
    Created,
    Event,
    Hint,
    Lease,
    NewJob,
    NotClaimed,
    Outcome,
    Page,
    Reaped,
    Written,
)
from tasks.store_codec import Lifetimes, check_cursor, check_outcome, conflict, encode_progress, new_record
from tasks.tally import observations

_CRASHES_TO_SOLO = 2


def _system_ms() -> int:
    return int(time.time() * 1000)


class MemoryJobStore(MemoryLooks):
    """`JobStore` without I/O. `clock` gives milliseconds, `broker_depth` the unread messages of a model."""

    def __init__(
        self,
        result_ttl_s: float = 7 * 86_400.0,
        max_queued: int = 100_000,
        dead_letter_ttl_s: float = 30 * 86_400.0,
        quotas: Quotas = NO_QUOTAS,
        *,
        clock: Callable[[], int] = _system_ms,
        broker_depth: Callable[[str], int] = lambda model: 0,
    ) -> None:
        self._ttl_ms = int(result_ttl_s * 1000)
        self._max_queued = max_queued
        self._now = clock
        self._broker_depth = broker_depth
        self._changed = threading.Condition(threading.RLock())
        lifetimes = Lifetimes(self._ttl_ms, int(max(result_ttl_s, dead_letter_ttl_s) * 1000))
        self._records = MemoryRecords(lifetimes, quotas, clock, self._changed.notify_all)
        self._picks = Picks(self._records)
        self._keys: dict[str, tuple[str, int]] = {}
        self._beats: dict[str, tuple[str, int]] = {}
        self._claims: dict[str, list[Entry]] = {}
        self._drains_ms: dict[str, int] = {}
        #: Ids with an abort key, as an outside program may write them.
        self.abort_wishes = self._records.abort_wishes

    # -- the producer's side ------------------------------------------------------------------------------------

    def create(self, jobs: Sequence[NewJob]) -> Sequence[Created | SafelightError]:
        with self._changed:
            return [self._create(new) for new in jobs]

    def _create(self, new: NewJob) -> Created | SafelightError:
        known = self._known_by(new)
        if known is not None:
            if known.new.digest != new.digest:
                return conflict(new, known.job_id)
            return Created(self._read(known), is_new=False)
        letter = None if new.retry_of is None else self._records.find(new.retry_of)
        if new.retry_of is not None and (letter is None or letter.dead_ms is None):
            return UnknownDeadLetter(new.retry_of)
        if new.rejected is None and len(self._records.having(JobStatus.QUEUED)) >= self._max_queued:
            return QueueFull(self._max_queued)
        if new.rejected is None and (refusal := self._picks.refusal(new)) is not None:
            return refusal
        if new.idempotency_key:
            self._keys[new.idempotency_scope] = (new.job_id, self._now() + self._ttl_ms)
        if new.supersedes:
            for other in self._records.live(new.request.group):
                self._records.abort(other)
        entry = self._records.add(new)
        if letter is not None:
            self._records.settle_letter(letter)
        return Created(new_record(new, moment(self._now()), self._records.position(entry)), is_new=True)

    def _known_by(self, new: NewJob) -> Entry | None:
        job_id, until_ms = self._keys.get(new.idempotency_scope, (new.job_id, 0))
        by_key = self._records.find(job_id) if until_ms > self._now() else None
        return by_key or self._records.find(new.job_id)

    def get(self, job_id: str) -> Job:
        with self._changed:
            return self._read(self._records.known(job_id))

    def list(
        self, *, status: JobStatus | None = None, group: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page:
        check_cursor(cursor)
        with self._changed:
            found = [
                entry
                for entry in sorted(self._records.all(), key=lambda entry: -entry.seq)
                if (status is None or entry.status is status)
                and (group is None or entry.new.request.group == group)
                and (cursor is None or entry.seq < int(cursor))
            ]
            more = len(found) > limit
            return Page([self._read(entry) for entry in found[:limit]], str(found[limit - 1].seq) if more else None)

    def abort(self, job_id: str) -> Job:
        with self._changed:
            entry = self._records.known(job_id)
            self._records.abort(entry)
            return self._read(entry)

    def abort_group(self, group: str) -> Sequence[str]:
        with self._changed:
            live = self._records.live(group)
            for entry in live:
                self._records.abort(entry)
            return [entry.job_id for entry in live]

    def events(self, job_id: str, *, after: str = "0", block_s: float = 0.0) -> Sequence[Event]:
        with self._changed:
            self._changed.wait_for(lambda: self._events(job_id, after), block_s or 0.0)
            return self._events(job_id, after)

    def _events(self, job_id: str, after: str) -> Sequence[Event]:
        entry = self._records.find(job_id)
        number = int(after.partition("-")[2] or 0)
        return [event for event in entry.events if int(event.id.partition("-")[2]) > number] if entry else []

    # -- the worker's side --------------------------------------------------------------------------------------

    def claim(self, job_id: str, worker: str, lease_s: float) -> Claimed | NotClaimed:
        with self._changed:
            entry = self._records.find(job_id)
            if entry is None:
                return NotClaimed("unknown")
            if entry.status is not JobStatus.QUEUED:
                return NotClaimed("terminal" if entry.status.is_terminal else "leased")
            if job_id in self.abort_wishes:
                self._records.move(entry, JobStatus.ABORTED)
                return NotClaimed("aborted")
            if self._records.is_late(entry):
                self._records.fail_late(entry)
                return NotClaimed("terminal")
            self._records.charge(entry)
            return self._start(entry, worker, lease_s)

    def take(self, model: str, hint: str, worker: str, lease_s: float) -> Claimed | NotClaimed:
        with self._changed:
            entry, passed = self._picks.pick(model)
            if entry is None:
                if passed:
                    self._picks.park(model)
                return NotClaimed("blocked" if passed else "idle")
            self._records.charge(entry, passed)
            return self._start(entry, worker, lease_s)

    def _start(self, entry: Entry, worker: str, lease_s: float) -> Claimed:
        entry.attempt += 1
        entry.lease_ms = self._now() + int(lease_s * 1000)
        entry.record |= {"attempt": str(entry.attempt), "worker": worker, "started": str(self._now())}
        self._records.count(entry, "attempts")
        self._records.move(entry, JobStatus.RUNNING)
        self._claims.setdefault(worker, []).append(entry)
        job, solo = self._read(entry), entry.crashes >= _CRASHES_TO_SOLO
        return Claimed(job, entry.attempt, solo, entry.new.trace, moment(entry.record["queued"]))

    def wake(self) -> Sequence[Hint]:
        with self._changed:
            return self._picks.wake_all()

    def renew(self, leases: Mapping[str, int], lease_s: float) -> Mapping[str, Lease]:
        with self._changed:
            return {job_id: self._renew(job_id, attempt, lease_s) for job_id, attempt in leases.items()}

    def _renew(self, job_id: str, attempt: int, lease_s: float) -> Lease:
        entry = self._records.current(job_id, attempt)
        if isinstance(entry, Written):
            return Lease.LOST
        entry.lease_ms = self._now() + int(lease_s * 1000)
        return Lease.ABORT if job_id in self.abort_wishes else Lease.HELD

    def aborts_wanted(self, job_ids: Sequence[str]) -> frozenset[str]:
        with self._changed:
            return frozenset(job_ids) & self.abort_wishes

    def report(self, progress: Mapping[tuple[str, int], Progress]) -> None:
        with self._changed:
            for (job_id, attempt), record in progress.items():
                entry = self._records.current(job_id, attempt)
                if not isinstance(entry, Written):
                    entry.record |= {"progress": encode_progress(record), "told": str(self._now())}
                    self._records.emit(entry, "progress", json.loads(entry.record["progress"]))

    def preview(self, job_id: str, attempt: int, data: Mapping[str, Any]) -> Written:
        with self._changed:
            entry = self._records.current(job_id, attempt)
            if isinstance(entry, Written):
                return entry
            entry.events = [event for event in entry.events if event.type != "preview"]
            self._records.emit(entry, "preview", data)
            return Written.OK

    def isolate(self, job_id: str, attempt: int, *, alone: bool = True) -> Written:
        with self._changed:
            entry = self._records.current(job_id, attempt)
            if isinstance(entry, Written):
                return entry
            entry.is_solo = alone
            return Written.OK

    def finish(self, job_id: str, attempt: int, outcome: Outcome) -> Written:
        check_outcome(outcome)
        with self._changed:
            entry = self._records.current(job_id, attempt)
            if isinstance(entry, Written):
                return self._finished_before(entry, job_id, attempt, outcome)
            texts = {"outputs": encode_each(outcome.outputs), "metrics": encode_optional(outcome.metrics)}
            texts["warnings"] = json.dumps(list(outcome.warnings)) if outcome.warnings else ""
            texts["batching"] = "" if outcome.batching is None else outcome.batching.model_dump_json()
            entry.record |= {name: text for name, text in texts.items() if text}
            self._observe(entry, outcome.metrics)
            if outcome.status is JobStatus.SUCCEEDED:
                self._records.measure(entry)
            if outcome.error is None:
                self._records.move(entry, outcome.status)
            else:
                self._records.add_error(entry, outcome.error)
                self._records.add_fault(entry, outcome.traceback)
                self._records.fail(entry, outcome.error, is_dead=is_dead_letter(outcome.error))
            return Written.OK

    def _observe(self, entry: Entry, metrics: JobMetrics) -> None:
        for field, amount in observations(metrics):
            self._records.count(entry, field, amount)

    def _finished_before(self, written: Written, job_id: str, attempt: int, outcome: Outcome) -> Written:
        entry = self._records.find(job_id)
        is_repeated = entry is not None and entry.attempt == attempt and entry.status is outcome.status
        return Written.OK if written is Written.TERMINAL and is_repeated else written

    def retry(
        self,
        job_id: str,
        attempt: int,
        error: JobError,
        max_attempts: int,
        metrics: JobMetrics | None = None,
        *,
        traceback: str = "",
    ) -> JobStatus | Written:
        with self._changed:
            entry = self._records.current(job_id, attempt)
            if isinstance(entry, Written):
                return entry
            self._records.add_error(entry, error)
            self._observe(entry, metrics or JobMetrics())
            self._records.add_fault(entry, traceback)
            entry.num_errors += 1
            if job_id in self.abort_wishes:
                self._records.move(entry, JobStatus.ABORTED)
            elif self._records.is_late(entry):
                self._records.fail_late(entry)
            elif entry.num_errors >= max_attempts or entry.is_worn_out(max_attempts):
                self._records.fail(entry, error, is_dead=is_dead_letter(error))
            else:
                self._records.count(entry, f"retried {error.type}")
                self._records.move(entry, JobStatus.QUEUED)
            if entry.status.is_terminal and (text := encode_optional(metrics)):
                entry.record["metrics"] = text
            return entry.status

    def release(self, job_id: str, attempt: int) -> Written:
        with self._changed:
            entry = self._records.current(job_id, attempt)
            if isinstance(entry, Written):
                return entry
            if job_id in self.abort_wishes:
                entry.may_litter = True
                self._records.move(entry, JobStatus.ABORTED)
            else:
                entry.released += 1
                self._records.count(entry, "given_back")
                self._records.move(entry, JobStatus.QUEUED)
            return Written.OK

    def reap(self, max_attempts: int, limit: int = 100) -> Sequence[Reaped]:
        with self._changed:
            lapsed = [entry for entry in self._records.having(JobStatus.RUNNING) if entry.lease_ms <= self._now()]
            lapsed.sort(key=lambda entry: (entry.lease_ms, entry.job_id))
            reaped = [self._lapse(entry, max_attempts) for entry in lapsed[:limit]]
            self._records.trim()
            return reaped

    def _lapse(self, entry: Entry, max_attempts: int) -> Reaped:
        message = f"the worker stopped answering while it ran attempt {entry.attempt}"
        error = JobError(type="worker_lost", message=message, retryable=True, attempt=entry.attempt)
        self._records.add_error(entry, error)
        self._records.count(entry, "lost")
        self._records.add_fault(entry, "")
        entry.may_litter = True
        if entry.is_solo:
            entry.solo_crashes += 1
        else:
            entry.crashes += 1
        if entry.job_id in self.abort_wishes:
            self._records.move(entry, JobStatus.ABORTED)
        elif self._records.is_late(entry):
            self._records.fail_late(entry)
        elif entry.is_worn_out(max_attempts):
            self._records.fail(entry, error, is_dead=True)
        else:
            self._records.move(entry, JobStatus.QUEUED)
        return Reaped(entry.hint, entry.status)

    def stale_hints(self, limit: int = 100) -> Sequence[Hint]:
        with self._changed:
            unread = {model: self._broker_depth(model) for model in self._records.pace_s}
            depth = {model: waiting + self._picks.num_parked(model) for model, waiting in unread.items()}
            hints = self._picks.wake_all()
            due = [entry for entry in self._records.having(JobStatus.QUEUED) if entry.hint_due_ms <= self._now()]
            due = sorted(due, key=lambda entry: (entry.hint_due_ms, entry.job_id))[:limit]
            for model in [model for model, waiting in unread.items() if waiting == 0]:
                due += self._records.having(JobStatus.QUEUED, model)[:limit]
            for entry in due:
                if len(hints) < limit and self._is_lost(entry, depth):
                    hints.append(entry.hint)
            return hints

    def _is_lost(self, entry: Entry, depth: dict[str, int]) -> bool:
        """Whether the entry needs a message, which is noted as sent then."""
        now, waiting = self._now(), depth[entry.model]
        if entry.status is not JobStatus.QUEUED:
            return False
        if entry.job_id in self.abort_wishes:
            self._records.move(entry, JobStatus.ABORTED)
        elif self._records.is_late(entry):
            self._records.fail_late(entry)
        elif entry.hinted_ms + entry.hint_interval_ms(waiting) <= now:
            is_lost = waiting < len(self._records.having(JobStatus.QUEUED, entry.model))
            if is_lost:
                entry.hints += 1
                entry.hinted_ms = now
            self._records.set_hint_due(entry, now + entry.hint_interval_ms(waiting))
            depth[entry.model] += is_lost
            return is_lost
        return False

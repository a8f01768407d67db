"""The records of `MemoryJobStore` and the moves that keep its indexes: what the local functions of `store.lua` do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.errors import UnknownJob
from tasks.eta import Load, Speed
from tasks.job import TRANSITIONS, Job, JobError, JobStatus
from tasks.job_codec import Snapshot, decode_job, encode_optional, encode_request, work_of
from tasks.memory_turns import PRIORITY_WORTH, STAMPS_PER_MS, Tags, jobs_ahead
from tasks.quotas import DEFAULT_TENANT, Quotas
from tasks.store import Event, Hint, NewJob, Written
from tasks.store_codec import Lifetimes

_MAX_EVENTS = 256
_HINT_BASE_MS = 5_000
_MAX_ATTEMPTS_EXTRA = 10
_MAX_SOLO_CRASHES = 2
_MAX_FAULTS = 10
_MAX_INDEX = 10_000
_LITTER_DELAY_MS = 120_000


@dataclass(slots=True)
class Entry:
    """A record (the same strings as in Redis) and the counters that no reader sees."""

    new: NewJob
    model: str
    seq: int
    stamp: int
    deadline_ms: int | None
    record: dict[str, str]
    status: JobStatus = JobStatus.QUEUED
    attempt: int = 0
    lease_ms: int = 0
    hinted_ms: int = 0
    hint_due_ms: int = 0
    hints: int = 0
    num_errors: int = 0
    crashes: int = 0
    is_solo: bool = False
    solo_crashes: int = 0
    released: int = 0
    expires_ms: int | None = None
    dead_ms: int | None = None
    events: list[Event] = field(default_factory=list)
    #: What only an operator sees of the failed attempts, as JSON.
    faults: list[str] = field(default_factory=list)
    may_litter: bool = False

    @classmethod
    def queued(cls, new: NewJob, seq: int, stamp: int, now_ms: int) -> Entry:
        request = new.request
        assert request.model, "the request is resolved"
        record = {"request": encode_request(request), "created": str(now_ms), "attempt": "0", "status": "queued"}
        if new.retry_of is not None:
            record["retry_of"] = new.retry_of
        if new.tenant != DEFAULT_TENANT:
            record["tenant"] = new.tenant
        deadline_ms = None if request.deadline_s is None else now_ms + int(request.deadline_s * 1000)
        return cls(new, request.model, seq, stamp, deadline_ms, record)

    @property
    def job_id(self) -> str:
        return self.new.job_id

    @property
    def hint(self) -> Hint:
        return Hint(self.job_id, self.model, self.new.request.priority)

    @property
    def rank(self) -> tuple[int, int]:
        return -self.new.request.priority, self.seq

    @property
    def place(self) -> tuple[int, str]:
        """In its tenant's line."""
        return self.stamp - self.new.request.priority * PRIORITY_WORTH, self.job_id

    @property
    def rows(self) -> int:
        return self.new.request.num_outputs

    def is_worn_out(self, max_attempts: int) -> bool:
        """Crashes and errors together used the job up, or it crashed its worker twice while it ran alone."""
        used = self.attempt - self.released
        return self.solo_crashes >= _MAX_SOLO_CRASHES or used >= _MAX_ATTEMPTS_EXTRA + max_attempts

    def hint_interval_ms(self, waiting: int) -> int:
        return _HINT_BASE_MS if waiting == 0 else _HINT_BASE_MS * 2 ** min(self.hints, 4)


def owners(new: NewJob) -> list[tuple[str, str]]:
    """Whose limits it counts against: kind and name."""
    group = new.request.group
    return [("tenant", new.tenant), *([("group", group)] if group is not None else [])]


class MemoryRecords:
    """Not thread-safe: the store holds its lock around every call."""

    def __init__(self, ttl: Lifetimes, quotas: Quotas, clock: Callable[[], int], notify: Callable[[], None]) -> None:
        self.quotas = quotas
        #: By model, and never changed in place.
        self.tags: Mapping[str, Tags] = {}
        self._stamp = 0
        self._ttl = ttl
        self.now = clock
        self._notify = notify
        self.abort_wishes: set[str] = set()
        #: Average seconds of a successful attempt, for each model that a job was ever made for.
        self.pace_s: dict[str, float | None] = {}
        #: Ended jobs that may have left a checkpoint, by when to look.
        self.litter_ms: dict[str, int] = {}
        self._entries: dict[str, Entry] = {}
        self._num_created = 0
        self._num_events = 0
        self.counters: Counter[str] = Counter()

    def count(self, entry: Entry, what: str, by: int = 1) -> None:
        self.counters[f"{entry.model} {what}"] += by

    def add(self, new: NewJob) -> Entry:
        self._num_created += 1
        self._stamp = max(self.now() * STAMPS_PER_MS, self._stamp + 1)
        entry = self._entries[new.job_id] = Entry.queued(new, self._num_created, self._stamp, self.now())
        self.pace_s.setdefault(entry.model, None)
        self.count(entry, "created")
        if new.rejected is None:
            self.enqueue(entry)
            self.emit_status(entry, "status")
        else:
            self.add_error(entry, new.rejected)
            self.fail(entry, new.rejected, is_dead=False)
        return entry

    def find(self, job_id: str) -> Entry | None:
        entry = self._entries.get(job_id)
        return None if entry is None or self._has_expired(entry) else entry

    def known(self, job_id: str) -> Entry:
        """Raises `UnknownJob`."""
        if (entry := self.find(job_id)) is None:
            raise UnknownJob(job_id)
        return entry

    def current(self, job_id: str, attempt: int) -> Entry | Written:
        """The entry if this is its running attempt; else why it must not be written."""
        entry = self.find(job_id)
        if entry is not None and entry.status.is_terminal:
            return Written.TERMINAL
        if entry is None or entry.status is not JobStatus.RUNNING or entry.attempt != attempt:
            return Written.FENCED
        return entry

    def all(self) -> list[Entry]:
        return [entry for entry in self._entries.values() if not self._has_expired(entry)]

    def having(self, status: JobStatus, model: str | None = None) -> list[Entry]:
        """Those in this status, first of the queue first."""
        found = [entry for entry in self.all() if entry.status is status and model in (None, entry.model)]
        return sorted(found, key=lambda entry: entry.rank)

    def tags_of(self, model: str) -> Tags:
        return self.tags.get(model, Tags())

    def _retag(self, model: str, tags: Tags) -> None:
        self.tags = {**self.tags, model: tags}

    def line(self, model: str, tenant: str) -> list[Entry]:
        """Its queued jobs in the order in which they are claimed."""
        queued = (entry for entry in self.having(JobStatus.QUEUED, model) if entry.new.tenant == tenant)
        return sorted(queued, key=lambda entry: entry.place)

    def charge(self, entry: Entry, passed: Iterable[str] = ()) -> None:
        """Its tenant's tag moves on, and those of whom a limit kept from their turn with it."""
        tenant = entry.new.tenant
        tags = self.tags_of(entry.model).lifted(passed, tenant)
        self._retag(entry.model, tags.charged(tenant, entry.rows / self.quotas.of(tenant).weight))

    def rows_of(self, status: JobStatus, kind: str, name: str) -> int:
        """Of a tenant's or a group's jobs in that state."""
        return sum(entry.rows for entry in self.having(status) if (kind, name) in owners(entry.new))

    def live(self, group: str | None) -> list[Entry]:
        """Those of the group that have not ended, oldest first."""
        return [entry for entry in self.all() if entry.new.request.group == group and not entry.status.is_terminal]

    def _has_expired(self, entry: Entry) -> bool:
        return entry.expires_ms is not None and entry.expires_ms <= self.now()

    def trim(self) -> None:
        self._entries = {entry.job_id: entry for entry in self.all()}

    def is_late(self, entry: Entry) -> bool:
        return entry.deadline_ms is not None and entry.deadline_ms <= self.now()

    def move(self, entry: Entry, to: JobStatus) -> None:
        """The one writer of `status`."""
        assert to in TRANSITIONS[entry.status], f"no transition {entry.status} -> {to}"
        own_attempts = int(entry.status is JobStatus.RUNNING)
        was_in_line = entry.status is JobStatus.QUEUED and entry.new.rejected is None
        entry.status = to
        if was_in_line and not self.line(entry.model, entry.new.tenant):
            self._retag(entry.model, self.tags_of(entry.model).left(entry.new.tenant))
        entry.record["status"] = to.value
        if to is JobStatus.QUEUED:
            for name in ("worker", "started", "progress", "told"):
                entry.record.pop(name, None)
            entry.is_solo = False
            self.enqueue(entry)
        self.emit_status(entry, "status")
        if to.is_terminal:
            self.emit_status(entry, "done")
            entry.record["finished"] = str(self.now())
            error = json.loads(entry.record.get("error", "null"))
            self.count(entry, f"ended {to.value}" + (f" {error['type']}" if error else ""))
            if entry.may_litter or entry.attempt > own_attempts:
                self.litter_ms[entry.job_id] = self.now() + _LITTER_DELAY_MS
            is_dead = entry.dead_ms is not None
            entry.expires_ms = self.now() + (self._ttl.dead_letter_ms if is_dead else self._ttl.result_ms)
            entry.faults = entry.faults if is_dead else []
            self.abort_wishes.discard(entry.job_id)

    def enqueue(self, entry: Entry) -> None:
        entry.hinted_ms, entry.hints = self.now(), 0
        entry.record["queued"] = str(self.now())
        self._retag(entry.model, self.tags_of(entry.model).entered(entry.new.tenant))
        self.set_hint_due(entry, self.now() + _HINT_BASE_MS)

    def set_hint_due(self, entry: Entry, due_ms: int) -> None:
        entry.hint_due_ms = due_ms if entry.deadline_ms is None else min(due_ms, entry.deadline_ms)

    def abort(self, entry: Entry) -> None:
        if entry.status is JobStatus.QUEUED:
            self.move(entry, JobStatus.ABORTED)
        elif entry.status is JobStatus.RUNNING and entry.job_id not in self.abort_wishes:
            self.abort_wishes.add(entry.job_id)
            self.emit_status(entry, "status", abort_requested=True)

    def add_error(self, entry: Entry, error: JobError) -> None:
        earlier = entry.record.get("errors")
        text = encode_optional(error)
        entry.record["errors"] = f"{earlier},{text}" if earlier else text

    def add_fault(self, entry: Entry, traceback: str) -> None:
        fault = {"attempt": entry.attempt, "worker": entry.record["worker"], "at": self.now()}
        text = json.dumps(fault | ({"traceback": traceback} if traceback else {}))
        entry.faults = [*entry.faults[1 - _MAX_FAULTS :], text]

    def letters(self) -> list[Entry]:
        """Dead ones, newest first."""
        dead = [entry for entry in self.all() if entry.dead_ms is not None]
        return sorted(dead, key=lambda entry: (entry.dead_ms, entry.job_id), reverse=True)

    def settle_letter(self, entry: Entry) -> None:
        """Off the index; the record then stays as long as any other's, which may be over."""
        entry.dead_ms, entry.faults = None, []
        entry.expires_ms = int(entry.record["finished"]) + self._ttl.result_ms

    def fail(self, entry: Entry, error: JobError, *, is_dead: bool) -> None:
        entry.record["error"] = encode_optional(error)
        entry.dead_ms = self.now() if is_dead else None
        self.move(entry, JobStatus.FAILED)
        for oldest in self.letters()[_MAX_INDEX:]:
            self.settle_letter(oldest)

    def fail_late(self, entry: Entry) -> None:
        message = "the deadline passed before the job was done"
        self.fail(entry, JobError(type="deadline_exceeded", message=message, attempt=entry.attempt), is_dead=False)

    def measure(self, entry: Entry) -> None:
        """Learn from an attempt that succeeded now."""
        seconds, pace_s = (self.now() - int(entry.record["started"])) / 1000, self.pace_s[entry.model]
        self.pace_s[entry.model] = round(0.8 * pace_s + 0.2 * seconds if pace_s else seconds, 3)

    def emit_status(self, entry: Entry, kind: str, **more: bool) -> None:
        worker = {"worker": entry.record["worker"]} if "worker" in entry.record else {}
        self.emit(entry, kind, {"status": entry.status.value, "attempt": entry.attempt, **worker, **more})

    def emit(self, entry: Entry, kind: str, data: Mapping[str, Any]) -> None:
        self._num_events += 1
        event = Event(f"{self.now()}-{self._num_events}", kind, json.loads(json.dumps(dict(data))))
        entry.events = [*entry.events[1 - _MAX_EVENTS :], event]
        self._notify()

    def position(self, entry: Entry) -> int | None:
        load = self.load(entry)
        return None if load is None else load.position

    def load(self, entry: Entry) -> Load | None:
        if entry.status is not JobStatus.QUEUED:
            return None
        queued = self.having(JobStatus.QUEUED, entry.model)
        lengths = Counter(other.new.tenant for other in queued)
        rank = self.line(entry.model, entry.new.tenant).index(entry)
        position = jobs_ahead(self.tags_of(entry.model), lengths, self.quotas, entry.new.tenant, rank)
        return Load(position, len(queued), sum(work_of(other.new.request) for other in queued))

    def read(self, entry: Entry, speeds: tuple[Speed, ...]) -> Job:
        num_running = len(self.having(JobStatus.RUNNING, entry.model))
        abort_wanted = not entry.status.is_terminal and entry.job_id in self.abort_wishes
        facts = (self.load(entry), self.pace_s[entry.model] or None, num_running, speeds, abort_wanted)
        return decode_job(Snapshot(entry.job_id, entry.record, self.now(), *facts))

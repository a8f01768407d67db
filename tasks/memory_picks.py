"""Which job runs next and who is at a limit, for the store in memory; the twin of `pick` and its kin in `turns.lua`."""

from __future__ import annotations

from tasks.errors import SafelightError
from tasks.job import JobStatus
from tasks.memory_records import Entry, MemoryRecords, owners
from tasks.memory_turns import MAX_LOOK
from tasks.quotas import Limits
from tasks.store import Hint, NewJob
from tasks.store_codec import in_words, over_limit


class Picks:
    """Not thread-safe: the store holds its lock around every call."""

    def __init__(self, records: MemoryRecords) -> None:
        self._records = records
        self._parked: dict[str, int] = {}

    def pick(self, model: str) -> tuple[Entry | None, list[str]]:
        """The model's next job, and the tenants that were passed over: they are at a limit."""
        passed: list[str] = []
        while True:
            order = self._records.tags_of(model).order()
            if len(passed) == len(order):
                return None, passed
            tenant = order[len(passed)][1]
            entry = self._next_of(model, tenant)
            if entry is not None:
                return entry, passed
            if tenant in self._records.tags_of(model).waiting:
                passed.append(tenant)

    def _next_of(self, model: str, tenant: str) -> Entry | None:
        shut: set[str | None] = set()
        for entry in self._records.line(model, tenant)[:MAX_LOOK]:
            if not self._still_waits(entry):
                continue
            if self._is_over("tenant", tenant, entry.rows):
                return None
            group = entry.new.request.group
            if group is None or not (group in shut or self._is_over("group", group, entry.rows)):
                return entry
            shut.add(group)
        return None

    def _still_waits(self, entry: Entry) -> bool:
        if entry.job_id in self._records.abort_wishes:
            self._records.move(entry, JobStatus.ABORTED)
        elif self._records.is_late(entry):
            self._records.fail_late(entry)
        return entry.status is JobStatus.QUEUED

    def _limits(self, kind: str, name: str) -> Limits:
        quotas = self._records.quotas
        return quotas.of(name) if kind == "tenant" else quotas.groups

    def _is_over(self, kind: str, name: str, rows: int) -> bool:
        limit = self._limits(kind, name).max_running_rows
        running = self._records.rows_of(JobStatus.RUNNING, kind, name)
        return limit is not None and running > 0 and running + rows > limit

    def held_by(self, entry: Entry) -> str | None:
        """Whose limit keeps a queued job waiting, in words."""
        for kind, name in owners(entry.new) if entry.status is JobStatus.QUEUED else ():
            if self._is_over(kind, name, entry.rows):
                limit = self._limits(kind, name).max_running_rows or 0
                return in_words(kind, name, self._records.rows_of(JobStatus.RUNNING, kind, name), limit)
        return None

    def refusal(self, new: NewJob) -> SafelightError | None:
        rows = new.request.num_outputs
        for kind, name in owners(new):
            limits = self._limits(kind, name)
            for limit in (limits.max_queued_rows, limits.max_running_rows):
                if limit is not None and rows > limit:
                    return over_limit("too large", kind, name, limit)
            queued = self._records.rows_of(JobStatus.QUEUED, kind, name)
            queued = 0 if kind == "group" and new.supersedes else queued
            if limits.max_queued_rows is not None and queued + rows > limits.max_queued_rows:
                return over_limit("over", kind, name, limits.max_queued_rows)
        return None

    def num_parked(self, model: str) -> int:
        return self._parked.get(model, 0)

    def park(self, model: str) -> None:
        self._set_parked(model, self.num_parked(model) + 1)

    def _set_parked(self, model: str, number: int) -> None:
        self._parked = {**self._parked, model: min(number, len(self._records.having(JobStatus.QUEUED, model)))}

    def wake(self, model: str) -> Hint | None:
        self._set_parked(model, self.num_parked(model))
        entry = self.pick(model)[0] if self.num_parked(model) else None
        if entry is None:
            return None
        self._parked = {**self._parked, model: self.num_parked(model) - 1}
        return entry.hint

    def wake_all(self) -> list[Hint]:
        hints = (self.wake(model) for model in self._parked)
        return [hint for hint in hints if hint is not None]

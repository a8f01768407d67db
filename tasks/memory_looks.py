"""The half of the store in memory that readers and operators use: records, queues, workers, dead letters, litter."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tasks.beats import aged, serves
from tasks.dead_letters import ANY_LETTER, DeadLetter, DeadLetterPage, LetterFilter, letter_of, parse_cursor
from tasks.errors import UnknownDeadLetter
from tasks.eta import Speed, speeds_of
from tasks.job import Batching, Job, JobStatus
from tasks.job_codec import moment, work_of
from tasks.memory_picks import Picks
from tasks.memory_records import Entry, MemoryRecords
from tasks.store import Drained, JobFacts, PriorityStats, QueueStats, TenantRows, Totals
from tasks.tally import Tally

_DRAIN_TTL_MS = 3_600_000


class MemoryLooks:
    """Over what the store that inherits it holds."""

    _changed: threading.Condition
    _now: Callable[[], int]
    _records: MemoryRecords
    _picks: Picks
    _max_queued: int
    _beats: dict[str, tuple[str, int]]
    #: By worker, what it has claimed since its last beat.
    _claims: dict[str, list[Entry]]
    _drains_ms: dict[str, int]
    #: Ids with an abort key, as an outside program may write them.
    abort_wishes: set[str]

    def _read(self, entry: Entry) -> Job:
        return self._records.read(entry, self._speeds(entry.model))

    def _speeds(self, model: str) -> tuple[Speed, ...]:
        told = ((name, speeds_of(info).get(model)) for name, info in self._beating())
        return tuple(self._with_claims(name, model, speed) for name, speed in told if speed is not None)

    def _with_claims(self, worker: str, model: str, speed: Speed) -> Speed:
        for entry in self._claims.get(worker, ()):
            if entry.model == model:
                request = entry.new.request
                speed = speed.with_job(request.num_outputs, work_of(request))
        return speed

    def _alive(self) -> list[Mapping[str, Any]]:
        return [info for _, info in self._beating()]

    def _beating(self) -> list[tuple[str, Mapping[str, Any]]]:
        alive = sorted((until, name, info) for name, (info, until) in self._beats.items() if until > self._now())
        return [(name, aged(json.loads(info), until - self._now())) for until, name, info in alive]

    def queues(self, models: Sequence[str]) -> Sequence[QueueStats]:
        with self._changed:
            return [self._stats(model) for model in models]

    def tenants(self) -> Sequence[TenantRows]:
        with self._changed:
            live = [entry for entry in self._records.all() if not entry.status.is_terminal]
            states = (JobStatus.QUEUED, JobStatus.RUNNING)
            return [
                TenantRows(name, *(self._records.rows_of(status, "tenant", name) for status in states))
                for name in sorted({entry.new.tenant for entry in live})
            ]

    def _stats(self, model: str) -> QueueStats:
        queued = self._records.having(JobStatus.QUEUED, model)
        first: dict[int, list[Entry]] = {}
        for entry in queued:
            first.setdefault(entry.new.request.priority, []).append(entry)
        priorities = tuple(PriorityStats(n, len(some), self._age_s(some[0])) for n, some in first.items())
        oldest_s = max((one.oldest_s for one in priorities), default=None)
        num_running = len(self._records.having(JobStatus.RUNNING, model))
        return QueueStats(model, len(queued), num_running, oldest_s, priorities)

    def _age_s(self, entry: Entry) -> float:
        return max(0, self._now() - int(entry.record["created"])) / 1000

    def litter(self, limit: int = 100, lease_s: float = 60.0) -> Sequence[str]:
        with self._changed:
            marks = self._records.litter_ms.items()
            due = sorted((due_ms, job_id) for job_id, due_ms in marks if due_ms <= self._now())
            job_ids = [job_id for _, job_id in due[:limit]]
            self._records.litter_ms |= dict.fromkeys(job_ids, self._now() + int(lease_s * 1000))
            return job_ids

    def swept(self, job_ids: Sequence[str]) -> None:
        with self._changed:
            for job_id in job_ids:
                self._records.litter_ms.pop(job_id, None)

    def beat(self, worker: str, info: Mapping[str, Any], ttl_s: float) -> bool:
        with self._changed:
            self._claims.pop(worker, None)
            self._beats[worker] = (json.dumps(dict(info)), self._now() + int(ttl_s * 1000))
            return self._drains_ms.get(worker, 0) > self._now()

    def leave(self, worker: str) -> None:
        with self._changed:
            self._beats.pop(worker, None)
            self._claims.pop(worker, None)
            self._drains_ms.pop(worker, None)

    def workers(self) -> Sequence[Mapping[str, Any]]:
        with self._changed:
            return [info for info in self._alive() if serves(info)]

    def _live_workers(self) -> tuple[str, ...]:
        """The one that is given up first comes first."""
        beats = sorted((until, name) for name, (_, until) in self._beats.items())
        return tuple(name for until, name in beats if until > self._now())

    def drain(self, node: str | None) -> Drained:
        with self._changed:
            live = self._live_workers()
            asked = [name for name in live if node in (None, name, _host_of(name))]
            self._drains_ms |= dict.fromkeys(asked, self._now() + _DRAIN_TTL_MS)
            return Drained(asked, [*live])

    def explain(self, job_id: str) -> JobFacts:
        with self._changed:
            entry = self._records.known(job_id)
            text = entry.record.get("batching")
            batching = None if text is None else Batching.model_validate_json(text)
            crashes = (0, 0) if entry.status.is_terminal else (entry.crashes, entry.solo_crashes)
            is_wanted = job_id in self.abort_wishes
            return JobFacts(self._read(entry), is_wanted, *crashes, batching, self._alive(), self._picks.held_by(entry))

    def totals(self) -> Totals:
        with self._changed:
            return Totals(Tally(dict(self._records.counters)), 0, 0, len(self.dead_letters(self._max_queued)))

    def dead_letters(self, limit: int = 100) -> Sequence[str]:
        with self._changed:
            return [entry.job_id for entry in self._records.letters()[:limit]]

    def find_dead_letters(
        self, wanted: LetterFilter = ANY_LETTER, *, limit: int = 50, cursor: str | None = None
    ) -> DeadLetterPage:
        after = parse_cursor(cursor)
        with self._changed:
            entries = [entry for entry in self._records.letters() if after is None or _letter_key(entry) < after]
            found = [entry for entry in entries if wanted.admits(self._read(entry), self._now() - (entry.dead_ms or 0))]
            last = found[limit - 1] if len(found) > limit else None
            letters = [self._letter(entry) for entry in found[:limit]]
            return DeadLetterPage(letters, None if last is None else f"{last.dead_ms}-{last.job_id}")

    def _letter(self, entry: Entry, faults: Sequence[str] = ()) -> DeadLetter:
        died_at = moment(entry.dead_ms)
        assert died_at is not None
        return letter_of(self._read(entry), died_at, faults)

    def dead_letter(self, job_id: str) -> DeadLetter:
        with self._changed:
            entry = self._records.find(job_id)
            if entry is None or entry.dead_ms is None:
                raise UnknownDeadLetter(job_id)
            return self._letter(entry, entry.faults)

    def drop_dead_letters(self, job_ids: Sequence[str]) -> int:
        with self._changed:
            dead = [entry for entry in self._records.letters() if entry.job_id in job_ids]
            for entry in dead:
                self._records.settle_letter(entry)
            return len(dead)


def _letter_key(entry: Entry) -> tuple[int, str]:
    return entry.dead_ms or 0, entry.job_id


def _host_of(worker: str) -> str | None:
    """What stands before the process id and the incarnation."""
    match = re.fullmatch(r"(.+):[0-9]+:[0-9a-fA-F]+", worker)
    return match and match[1]

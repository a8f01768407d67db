"""The contract of a job store: who may move a job, and what each move answers. Two stores keep it: Redis and a dict.

Every call is atomic. `attempt` is the fencing token: a write that carries an old one changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Protocol

from tasks.dead_letters import ANY_LETTER, DeadLetter, DeadLetterPage, LetterFilter
from tasks.errors import SafelightError
from tasks.job import Batching, Job, JobError, JobMetrics, JobStatus, Output, Progress
from tasks.quotas import DEFAULT_TENANT
from tasks.request import GenerationRequest
from tasks.tally import Tally


@dataclass(frozen=True, slots=True)
class NewJob:
    job_id: str
    #: Resolved: every default and the seed filled in.
    request: GenerationRequest
    #: SHA-256 of the body as the producer sent it, before defaults.
    digest: str
    idempotency_key: str | None = None
    #: Recorded as failed at once: the request came without anyone to refuse it to.
    rejected: JobError | None = None
    #: W3C traceparent of the call that made it; spans of its attempts join that trace.
    trace: str | None = None
    #: The dead letter that this job is to replace.
    retry_of: str | None = None
    #: For whom: whose share of the workers it uses, and whose limits it counts against.
    tenant: str = DEFAULT_TENANT

    @property
    def idempotency_scope(self) -> str:
        """The idempotency key as this tenant's own; '' for none. No key has a line break."""
        key = self.idempotency_key or ""
        return key if not key or self.tenant == DEFAULT_TENANT else f"{self.tenant}\n{key}"

    @property
    def supersedes(self) -> bool:
        """A retry comes late: the jobs of its group that live now are newer than what it repeats."""
        return self.request.supersede and self.retry_of is None


@dataclass(frozen=True, slots=True)
class Created:
    job: Job
    #: False: the same idempotency key and body came before, and this is that job.
    is_new: bool


@dataclass(frozen=True, slots=True)
class Claimed:
    job: Job
    attempt: int
    #: Two crashes while it shared a batch: it must run alone now.
    solo: bool
    trace: str | None = None
    #: Since when it had waited: its creation, or the end of the attempt before.
    queued_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NotClaimed:
    #: leased: another attempt holds it; aborted: the wish was there first, and the job is aborted now. Of a turn: idle:
    #: no job of the model waits; blocked: all that do are of tenants or groups at their limits, and the turn is kept.
    reason: Literal["unknown", "terminal", "leased", "aborted", "idle", "blocked"]


class Lease(StrEnum):
    HELD = "held"
    #: Held, and somebody wants the job aborted.
    ABORT = "abort"
    #: Another attempt, or the rescuer, has it. Stop, and write nothing.
    LOST = "lost"


class Written(StrEnum):
    OK = "ok"
    #: The attempt is not the current one; nothing was written.
    FENCED = "fenced"
    #: The job had ended before; nothing was written.
    TERMINAL = "terminal"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended; `status` is terminal."""

    status: JobStatus
    outputs: Sequence[Output] = ()
    error: JobError | None = None
    warnings: Sequence[str] = ()
    metrics: JobMetrics = field(default_factory=JobMetrics)
    batching: Batching | None = None
    #: For an operator, if this makes the job a dead letter.
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Hint:
    """A job that needs a (new) Celery message."""

    job_id: str
    model: str
    priority: int


@dataclass(frozen=True, slots=True)
class Reaped:
    """An attempt whose lease ran out; `status` is where its job is now (queued, failed or aborted)."""

    hint: Hint
    status: JobStatus


@dataclass(frozen=True, slots=True)
class Event:
    """`id` is the stream's own and orders events; `type`: status, progress, preview, done."""

    id: str
    type: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    jobs: Sequence[Job]
    #: Pass it to the next call; None: this was the last page.
    cursor: str | None


@dataclass(frozen=True, slots=True)
class PriorityStats:
    priority: int
    queued: int
    #: Age of the oldest of them, seconds.
    oldest_s: float


@dataclass(frozen=True, slots=True)
class QueueStats:
    model: str
    queued: int
    running: int
    #: Age of the oldest queued job, seconds.
    oldest_s: float | None
    #: Those priorities that wait, 9 first.
    priorities: tuple[PriorityStats, ...] = ()


@dataclass(frozen=True, slots=True)
class TenantRows:
    """Rows of one tenant's live jobs."""

    tenant: str
    queued_rows: int = 0
    running_rows: int = 0


def by_tenant(tenants: Sequence[TenantRows]) -> dict[str, tuple[int, int]]:
    """Queued and running rows by name."""
    return {one.tenant: (one.queued_rows, one.running_rows) for one in tenants}


@dataclass(frozen=True, slots=True)
class Totals:
    """What was counted since the store was made, and what waits for webhooks and operators."""

    tally: Tally
    webhooks_waiting: int
    webhooks_dead: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class JobFacts:
    """All that one atomic look tells about a job and those who could run it."""

    job: Job
    abort_wanted: bool
    #: Lost leases, and those while it ran alone; of a live job.
    crashes: int
    solo_crashes: int
    batching: Batching | None
    workers: Sequence[Mapping[str, Any]]
    #: Whose limit on running rows keeps it waiting, in words.
    held_by: str | None = None


@dataclass(frozen=True, slots=True)
class Drained:
    #: Whole names of the workers that are asked now.
    asked: Sequence[str]
    #: Of all that are up.
    live: Sequence[str]


class JobStore(Protocol):
    """Times are the store's own clock. Every method may raise `StoreUnavailable`."""

    # -- the producer's side ------------------------------------------------------------------------------------

    def create(self, jobs: Sequence[NewJob]) -> Sequence[Created | SafelightError]:
        """Record queued jobs, each atomically, in as few round trips as it can; answers in the same order.

        An entry is `QueueFull` for a bound of all, of its tenant or of its group, `InvalidRequest` for one larger than
        a limit of the last two, or `IdempotencyConflict` for a known key or id with another digest. A known id or key
        with the same digest answers the job that is there. With `request.supersede`, older live jobs of the group are
        aborted in the same step. With `retry_of`, that dead letter leaves the index in the same step; an entry is
        `UnknownDeadLetter` if it is none (any more).
        """

    def get(self, job_id: str) -> Job:
        """Raises `UnknownJob`. For a queued job, `progress` carries its position and ETA."""

    def list(
        self, *, status: JobStatus | None = None, group: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page:
        """Newest first, at most `limit` (and 2 000) of them. Raises `InvalidRequest` for a cursor that no page gave."""

    def abort(self, job_id: str) -> Job:
        """Write the durable wish; a queued job ends at once, a terminal one is left as it is. Raises `UnknownJob`."""

    def abort_group(self, group: str) -> Sequence[str]:
        """Abort every live job of the group; their ids."""

    def events(self, job_id: str, *, after: str = "0", block_s: float = 0.0) -> Sequence[Event]:
        """Events after the given id, waiting up to `block_s` for the first one. Never raises `UnknownJob`."""

    # -- the worker's side --------------------------------------------------------------------------------------

    def claim(self, job_id: str, worker: str, lease_s: float) -> Claimed | NotClaimed:
        """queued → running with the next attempt number and a lease: this very job, out of turn, at any limit."""

    def take(self, model: str, hint: str, worker: str, lease_s: float) -> Claimed | NotClaimed:
        """A turn: `claim` for the job of the model that is due, which is seldom the one that the hint names.

        Of tenants that wait, the one that is furthest behind its share; of its jobs the oldest, a level of priority
        counting for a minute of age. Jobs on the way that are not to run (abort wanted, deadline passed) end.
        """

    def wake(self) -> Sequence[Hint]:
        """One message for each model in which a `blocked` turn is kept and a job may run now; that turn is spent.

        To be called when rows got free, and after a claim, as more may be. `stale_hints` does the same, later.
        """

    def renew(self, leases: Mapping[str, int], lease_s: float) -> Mapping[str, Lease]:
        """Extend the leases of `{job_id: attempt}` in one round trip, which is made for an empty mapping too."""

    def aborts_wanted(self, job_ids: Sequence[str]) -> frozenset[str]:
        """Those of the ids that carry an abort key, in one round trip."""

    def report(self, progress: Mapping[tuple[str, int], Progress]) -> None:
        """Progress of `(job_id, attempt)`, fenced each, in one round trip; emits `progress` events."""

    def preview(self, job_id: str, attempt: int, data: Mapping[str, Any]) -> Written:
        """Emit a `preview` event, fenced."""

    def isolate(self, job_id: str, attempt: int, *, alone: bool = True) -> Written:
        """Note that the attempt now runs alone, so that a crash is blamed on it; or that it no longer does."""

    def finish(self, job_id: str, attempt: int, outcome: Outcome) -> Written:
        """running → terminal. Also ok for the attempt that ended the job so before: its first answer may be lost."""

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
        """A failed attempt: running → queued, or failed once `max_attempts` errors are recorded; aborted if wanted.

        `metrics` are counted in any case, and recorded if the job ends.
        The new status, or why nothing was written. The caller publishes the hint of a job that is queued again.
        """

    def release(self, job_id: str, attempt: int) -> Written:
        """running → queued without an error: given back at drain; aborted if wanted. The caller publishes the hint."""

    def reap(self, max_attempts: int, limit: int = 100) -> Sequence[Reaped]:
        """End the attempts whose lease ran out: queued again, aborted if wanted, failed (`worker_lost`) if used up.

        A lost attempt counts as a crash, not as an error; after the second crash the job runs alone, and two crashes
        while alone are final. In any case 10 + `max_attempts` attempts (given back ones apart) are.
        """

    def stale_hints(self, limit: int = 100) -> Sequence[Hint]:
        """Queued jobs whose message is overdue; their next due time moves on.

        Queued jobs with an abort key, or past their deadline, end here. So does a terminal record past its TTL.
        """

    def litter(self, limit: int = 100, lease_s: float = 60.0) -> Sequence[str]:
        """Ids of ended jobs that may have left a checkpoint; each comes again after `lease_s`, until it is `swept`."""

    def swept(self, job_ids: Sequence[str]) -> None:
        """Nothing of these jobs is left."""

    # -- observation --------------------------------------------------------------------------------------------

    def queues(self, models: Sequence[str]) -> Sequence[QueueStats]: ...

    def tenants(self) -> Sequence[TenantRows]:
        """Of those that have live jobs, by name."""

    def beat(self, worker: str, info: Mapping[str, Any], ttl_s: float) -> bool:
        """Publish what a worker says of itself; it vanishes after `ttl_s` without another beat.

        Returns whether somebody wants it to drain; the wish holds for an hour.
        """

    def leave(self, worker: str) -> None:
        """The worker is gone, and with it any wish that it drains."""

    def drain(self, node: str | None) -> Drained:
        """Ask the live workers of this name to drain, or all. A name is a worker's whole one, or the part before its
        process id and incarnation, which several may share. Processes that start later are not meant.
        """

    def workers(self) -> Sequence[Mapping[str, Any]]:
        """What the live workers say, those that still load their models (state `starting`) left out."""

    def explain(self, job_id: str) -> JobFacts:
        """Raises `UnknownJob`. Its workers include those that start."""

    def totals(self) -> Totals: ...

    def dead_letters(self, limit: int = 100) -> Sequence[str]:
        """Ids of failed jobs kept for an operator, newest first."""

    def find_dead_letters(
        self, wanted: LetterFilter = ANY_LETTER, *, limit: int = 50, cursor: str | None = None
    ) -> DeadLetterPage:
        """Newest first, without their faults, at most `limit`; a page of which few are wanted may have fewer.

        Raises `InvalidRequest` for a cursor that no page gave.
        """

    def dead_letter(self, job_id: str) -> DeadLetter:
        """With its faults. Raises `UnknownDeadLetter`."""

    def drop_dead_letters(self, job_ids: Sequence[str]) -> int:
        """Take jobs off that list, seen to; how many were on it. Their records then stay as long as any other's."""

"""Calls of `store.lua` as data: arguments in, answers out. No I/O: the blocking and the async store share it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from tasks.beats import beats
from tasks.errors import (
    IdempotencyConflict,
    InvalidRequest,
    QueueFull,
    SafelightError,
    UnknownDeadLetter,
    UnknownJob,
)
from tasks.eta import Load, decode_speeds
from tasks.job import Batching, Job, JobError, JobMetrics, JobStatus, Progress
from tasks.job_codec import (
    Snapshot,
    decode_job,
    encode_each,
    encode_optional,
    encode_request,
    is_dead_letter,
    moment,
    work_of,
)
from tasks.store import (
    Claimed,
    Created,
    Hint,
    JobFacts,
    Lease,
    NewJob,
    NotClaimed,
    Outcome,
    Page,
    PriorityStats,
    QueueStats,
    Reaped,
    TenantRows,
    Totals,
    Written,
)
from tasks.tally import Tally, observations

T = TypeVar("T")
Argument = str | int | float
#: Jobs in one call of the script: a call of this many blocks Redis for some 5 ms.
CHUNK = 100


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One atomic call: the ids whose records it touches, the verb with its arguments, and what the reply means."""

    verb: str
    job_ids: Sequence[str]
    args: Sequence[Argument]
    decode: Callable[[Any], T]


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long a terminal record stays, in ms. That of a dead letter at least as long as any."""

    result_ms: int
    dead_letter_ms: int


def script_arguments(
    call: Call[Any], prefix: str, lifetimes: Lifetimes, clock: Callable[[], int] | None, quotas: str
) -> tuple[list[str], list[Argument]]:
    """KEYS and ARGV of a run of the script. A call about no job in particular routes by the list of all jobs.

    Raises ValueError for an id that is no text: a caller's, who gave the job instead, say.
    """
    if wrong := [job_id for job_id in call.job_ids if not isinstance(job_id, str | bytes)]:
        raise ValueError(f"job_id: wants a text, got a {type(wrong[0]).__name__}; a job's id is its `.id`")
    keys = [f"{prefix}job:{job_id}" for job_id in call.job_ids] or [f"{prefix}jobs"]
    head: list[Argument] = [prefix, call.verb, clock() if clock else ""]
    return keys, [*head, lifetimes.result_ms, lifetimes.dead_letter_ms, quotas, *call.args]


def create(jobs: Sequence[NewJob], max_queued: int) -> Iterator[Call[list[Created | SafelightError]]]:
    for first in range(0, len(jobs), CHUNK):
        chunk = jobs[first : first + CHUNK]

        def decode(replies: Any, chunk: Sequence[NewJob] = chunk) -> list[Created | SafelightError]:
            return [_created(job, reply, max_queued) for job, reply in zip(chunk, replies, strict=True)]

        args: list[Argument] = [max_queued]
        for job in chunk:
            args += _new_job(job)
        yield Call("create", [job.job_id for job in chunk], args, decode)


def _new_job(job: NewJob) -> list[Argument]:
    request = job.request
    assert request.model, "the request is resolved"
    deadline_ms = "" if request.deadline_s is None else str(int(request.deadline_s * 1000))
    record: list[Argument] = [job.job_id, encode_request(request), request.model, request.priority, request.group or ""]
    record += [int(job.supersedes), job.digest, job.idempotency_scope, deadline_ms]
    record += [job.trace or "", work_of(request)]
    return [*record, encode_optional(job.rejected), job.retry_of or "", job.tenant, request.num_outputs]


def _created(new: NewJob, reply: Sequence[Any], max_queued: int) -> Created | SafelightError:
    if reply[0] == "known":
        return Created(decode_job(snapshot(reply[1])), is_new=False)
    if reply[0] == "conflict":
        return conflict(new, reply[1])
    if reply[0] == "no letter":
        return UnknownDeadLetter(reply[1])
    if reply[0] == "full":
        return QueueFull(max_queued)
    if reply[0] in ("over", "too large"):
        return over_limit(reply[0], *reply[1:])
    created_at = moment(reply[1])
    return Created(new_record(new, created_at, None if new.rejected else int(reply[2])), is_new=True)


def over_limit(code: str, kind: str, name: str, limit: int) -> SafelightError:
    """`code`: over: the rest of the owner's rows must go first; too large: the job will never fit."""
    if code == "over":
        return QueueFull(limit, whose=f"{kind} {name}")
    return InvalidRequest("num_outputs", f"is above the limit of {kind} {name} ({limit} outputs at a time)")


def conflict(new: NewJob, known_id: str) -> IdempotencyConflict:
    what = f"idempotency key {new.idempotency_key!r}" if new.idempotency_key else f"job id {new.job_id!r}"
    return IdempotencyConflict(f"{what} was used before, with another request (job {known_id})")


def new_record(new: NewJob, created_at: datetime | None, position: int | None) -> Job:
    """The job as its record reads right after `create`."""
    assert created_at is not None
    progress = Progress(num_steps=new.request.num_inference_steps or 0, queue_position=position)
    job = Job(
        id=new.job_id,
        status=JobStatus.QUEUED,
        request=new.request,
        retry_of=new.retry_of,
        tenant=new.tenant,
        progress=progress,
        created_at=created_at,
    )
    if new.rejected is None:
        return job
    end = {"status": JobStatus.FAILED, "finished_at": created_at, "error": new.rejected, "errors": (new.rejected,)}
    return job.model_copy(update=end | {"metrics": JobMetrics(queue_ms=0.0, total_ms=0.0)})


def get(job_id: str) -> Call[Job]:
    return Call("get", [job_id], [job_id], lambda reply: _job(job_id, reply))


def check_cursor(cursor: str | None) -> None:
    """Raises `InvalidRequest` for what no page ever gave."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 16):
        raise InvalidRequest("cursor", "is not one that a page gave")


def list_jobs(status: JobStatus | None, group: str | None, limit: int, cursor: str | None) -> Call[Page]:
    check_cursor(cursor)

    def decode(reply: Any) -> Page:
        return Page([decode_job(snapshot(found)) for found in reply[1]], reply[0] or None)

    return Call("list", [], [status or "", group or "", limit, cursor or ""], decode)


def abort(job_id: str) -> Call[Job]:
    return Call("abort", [job_id], [job_id], lambda reply: _job(job_id, reply))


def abort_group(group: str, cursor: str) -> Call[tuple[str, list[str]]]:
    return Call("abort_group", [], [group, CHUNK, cursor or "-inf"], lambda reply: (reply[0], list(reply[1])))


def claim(job_id: str, worker: str, lease_s: float, token: str) -> Call[Claimed | NotClaimed]:
    return Call("claim", [job_id], [job_id, worker, int(lease_s * 1000), token], _claimed)


def take(model: str, hint: str, worker: str, lease_s: float, token: str) -> Call[Claimed | NotClaimed]:
    return Call("take", [hint], [model, hint, worker, int(lease_s * 1000), token], _claimed)


def _claimed(reply: Any) -> Claimed | NotClaimed:
    if reply[0] != "claimed":
        return NotClaimed(reply[0])
    found = snapshot(reply[3])
    trace, queued_at = found.record.get("trace"), moment(found.record.get("queued"))
    return Claimed(decode_job(found), int(reply[1]), bool(reply[2]), trace, queued_at)


def wake() -> Call[list[Hint]]:
    return Call("wake", [], [], lambda reply: [_hint(entry) for entry in reply])


def tenants() -> Call[list[TenantRows]]:
    def decode(reply: Any) -> list[TenantRows]:
        queued, running = map(_paired, reply)
        return [
            TenantRows(name, int(queued.get(name, 0)), int(running.get(name, 0)))
            for name in sorted(queued.keys() | running.keys())
        ]

    return Call("tenants", [], [], decode)


def renew(leases: Mapping[str, int], lease_s: float) -> Call[Mapping[str, Lease]]:
    args: list[Argument] = [arg for lease in leases.items() for arg in lease]
    job_ids = list(leases)

    def decode(reply: Any) -> Mapping[str, Lease]:
        return dict(zip(job_ids, map(Lease, reply), strict=True))

    return Call("renew", job_ids, [int(lease_s * 1000), *args], decode)


def aborts_wanted(job_ids: Sequence[str]) -> Call[frozenset[str]]:
    return Call("aborts_wanted", job_ids, job_ids, frozenset)


def report(progress: Mapping[tuple[str, int], Progress]) -> Call[None]:
    args = [arg for (job_id, attempt), record in progress.items() for arg in (job_id, attempt, encode_progress(record))]
    return Call("report", [job_id for job_id, _ in progress], args, lambda reply: None)


def encode_progress(progress: Progress) -> str:
    unsaid = {name for name in ("eta_s", "detail") if getattr(progress, name) is None}
    return progress.model_dump_json(exclude={"queue_position", *unsaid})


def preview(job_id: str, attempt: int, data: Mapping[str, Any]) -> Call[Written]:
    return Call("preview", [job_id], [job_id, attempt, json.dumps(dict(data))], Written)


def isolate(job_id: str, attempt: int, *, alone: bool) -> Call[Written]:
    return Call("isolate", [job_id], [job_id, attempt, int(alone)], Written)


def finish(job_id: str, attempt: int, outcome: Outcome) -> Call[Written]:
    check_outcome(outcome)
    warnings = json.dumps(list(outcome.warnings)) if outcome.warnings else ""
    texts = [encode_each(outcome.outputs), encode_optional(outcome.error), warnings, encode_optional(outcome.metrics)]
    texts += ["" if outcome.batching is None else outcome.batching.model_dump_json()]
    is_dead = int(outcome.status is JobStatus.FAILED and is_dead_letter(outcome.error))
    args: list[Argument] = [job_id, attempt, outcome.status, *texts, is_dead, outcome.traceback]
    return Call("finish", [job_id], [*args, *_flat(observations(outcome.metrics))], Written)


def _flat(pairs: Sequence[tuple[str, int]]) -> list[Argument]:
    return [part for pair in pairs for part in pair]


def check_outcome(outcome: Outcome) -> None:
    assert outcome.status.is_terminal, "an attempt ends in a terminal status, or by `retry` or `release`"
    assert (outcome.status is JobStatus.FAILED) == (outcome.error is not None), "a failure, and only that, has an error"


def retry(
    job_id: str, attempt: int, error: JobError, max_attempts: int, metrics: JobMetrics, traceback: str
) -> Call[JobStatus | Written]:
    def decode(reply: str) -> JobStatus | Written:
        return Written(reply) if reply in list(Written) else JobStatus(reply)

    args: list[Argument] = [job_id, attempt, encode_optional(error), max_attempts, encode_optional(metrics)]
    args += [int(is_dead_letter(error)), traceback, *_flat(observations(metrics))]
    return Call("retry", [job_id], args, decode)


def release(job_id: str, attempt: int) -> Call[Written]:
    return Call("release", [job_id], [job_id, attempt], Written)


def reap(max_attempts: int, limit: int) -> Call[list[Reaped]]:
    return Call(
        "reap", [], [max_attempts, limit], lambda reply: [Reaped(_hint(entry), JobStatus(entry[3])) for entry in reply]
    )


def stale_hints(limit: int, depths: Mapping[str, int]) -> Call[list[Hint]]:
    args: list[Argument] = [arg for depth in depths.items() for arg in depth]
    return Call("stale_hints", [], [limit, *args], lambda reply: [_hint(entry) for entry in reply])


def models() -> Call[list[str]]:
    """Names of the models that jobs were ever created for."""
    return Call("models", [], [], list)


def queues(names: Sequence[str]) -> Call[list[QueueStats]]:
    return Call("queues", [], names, lambda reply: [_queue_stats(*one) for one in reply])


def _queue_stats(model: str, queued: int, running: int, *figures: int) -> QueueStats:
    triples = zip(figures[::3], figures[1::3], figures[2::3], strict=True)
    priorities = tuple(PriorityStats(priority, num, age_ms / 1000) for priority, num, age_ms in triples)
    return QueueStats(model, queued, running, max((one.oldest_s for one in priorities), default=None), priorities)


def explain(job_id: str) -> Call[JobFacts]:
    def decode(reply: Any) -> JobFacts:
        if not reply:
            raise UnknownJob(job_id)
        found = snapshot(reply[0])
        record = found.record
        batching = Batching.model_validate_json(record["batching"]) if "batching" in record else None
        crashes = int(record.get("crashes", 0)), int(record.get("solo_crashes", 0))
        held_by = in_words(*reply[3]) if reply[3] else None
        workers = beats(reply[2])
        return JobFacts(decode_job(found), bool(reply[1]), *crashes, batching, workers, held_by)

    return Call("explain", [job_id], [job_id], decode)


def in_words(kind: str, name: str, running: int, limit: int) -> str:
    return f"{kind} {name} may run {limit} outputs at a time, and {running} do"


def totals() -> Call[Totals]:
    def decode(reply: Any) -> Totals:
        fields, *figures = reply
        return Totals(Tally({name: int(value) for name, value in _paired(fields).items()}), *figures)

    return Call("tally", [], [], decode)


def _paired(reply: Any) -> dict[str, str]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _hint(entry: Sequence[Any]) -> Hint:
    return Hint(entry[0], entry[1], int(entry[2]))


def _job(job_id: str, reply: Sequence[Any] | None) -> Job:
    if not reply:
        raise UnknownJob(job_id)
    return decode_job(snapshot(reply))


def snapshot(reply: Sequence[Any]) -> Snapshot:
    """What the script's function of this name answered."""
    job_id, fields, position, queued, work, pace, num_running, speeds, now_ms, abort = reply
    load = None if position < 0 else Load(position, queued, int(work))
    pace_s = float(pace or 0) or None
    alive = decode_speeds(list(_paired(speeds).values()), now_ms)
    return Snapshot(job_id, _paired(fields), now_ms, load, pace_s, num_running, alive, bool(abort))

"""Calls of `store.lua` as data: arguments in, answers out. No I/O: the blocking and the async store share it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from tasks.errors import (
    IdempotencyConflict,
    InvalidRequest,
    QueueFull,
    SafelightError,
    UnknownDeadLetter,
    UnknownJob,
)
from tasks.job import Job, JobError, JobStatus, Progress
from tasks.job_codec import (
    Snapshot,
    decode_job,
    encode_each,
    encode_optional,
    encode_request,
    is_dead_letter,
    moment,
)
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
    QueueStats,
    Reaped,
    Written,
)

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
    call: Call[Any], prefix: str, lifetimes: Lifetimes, clock: Callable[[], int] | None
) -> tuple[list[str], list[Argument]]:
    """KEYS and ARGV of a run of the script. A call about no job in particular routes by the list of all jobs."""
    keys = [f"{prefix}job:{job_id}" for job_id in call.job_ids] or [f"{prefix}jobs"]
    head: list[Argument] = [prefix, call.verb, clock() if clock else ""]
    return keys, [*head, lifetimes.result_ms, lifetimes.dead_letter_ms, *call.args]


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
    record += [int(job.supersedes), job.digest, job.idempotency_key or "", deadline_ms]
    return [*record, encode_optional(job.rejected), job.retry_of or ""]


def _created(new: NewJob, reply: Sequence[Any], max_queued: int) -> Created | SafelightError:
    if reply[0] == "known":
        return Created(decode_job(snapshot(reply[1])), is_new=False)
    if reply[0] == "conflict":
        return conflict(new, reply[1])
    if reply[0] == "no letter":
        return UnknownDeadLetter(reply[1])
    if reply[0] == "full":
        return QueueFull(max_queued)
    created_at = moment(reply[1])
    return Created(new_record(new, created_at, None if new.rejected else int(reply[2])), is_new=True)


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
        progress=progress,
        created_at=created_at,
    )
    if new.rejected is None:
        return job
    end = {"status": JobStatus.FAILED, "finished_at": created_at, "error": new.rejected, "errors": (new.rejected,)}
    return job.model_copy(update=end)


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
    def decode(reply: Any) -> Claimed | NotClaimed:
        if reply[0] != "claimed":
            return NotClaimed(reply[0])
        return Claimed(_job(job_id, reply[3]), attempt=int(reply[1]), solo=bool(reply[2]))

    return Call("claim", [job_id], [job_id, worker, int(lease_s * 1000), token], decode)


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
    return progress.model_dump_json(exclude={"queue_position", "eta_s"})


def preview(job_id: str, attempt: int, data: Mapping[str, Any]) -> Call[Written]:
    return Call("preview", [job_id], [job_id, attempt, json.dumps(dict(data))], Written)


def isolate(job_id: str, attempt: int) -> Call[Written]:
    return Call("isolate", [job_id], [job_id, attempt], Written)


def finish(job_id: str, attempt: int, outcome: Outcome) -> Call[Written]:
    check_outcome(outcome)
    warnings = json.dumps(list(outcome.warnings)) if outcome.warnings else ""
    texts = [encode_each(outcome.outputs), encode_optional(outcome.error), warnings, encode_optional(outcome.metrics)]
    is_dead = int(outcome.status is JobStatus.FAILED and is_dead_letter(outcome.error))
    args: list[Argument] = [job_id, attempt, outcome.status, *texts, is_dead, outcome.traceback]
    return Call("finish", [job_id], args, Written)


def check_outcome(outcome: Outcome) -> None:
    assert outcome.status.is_terminal, "an attempt ends in a terminal status, or by `retry` or `release`"
    assert (outcome.status is JobStatus.FAILED) == (outcome.error is not None), "a failure, and only that, has an error"


def retry(job_id: str, attempt: int, error: JobError, max_attempts: int, traceback: str) -> Call[JobStatus | Written]:
    def decode(reply: str) -> JobStatus | Written:
        return Written(reply) if reply in list(Written) else JobStatus(reply)

    args: list[Argument] = [
        job_id,
        attempt,
        encode_optional(error),
        max_attempts,
        int(is_dead_letter(error)),
        traceback,
    ]
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
    def decode(reply: Any) -> list[QueueStats]:
        return [
            QueueStats(model, queued, running, None if age_ms < 0 else age_ms / 1000)
            for model, queued, running, age_ms in reply
        ]

    return Call("queues", [], names, decode)


def decode_events(reply: Any) -> list[Event]:
    """From XREAD of one stream, in the shape of either protocol version."""
    if not reply:
        return []
    entries = next(iter(reply.values()))[0] if isinstance(reply, dict) else reply[0][1]
    return [Event(event_id, fields["type"], json.loads(fields["data"])) for event_id, fields in entries if fields]


#: What `lost_done` needs of a record.
DONE_FIELDS = ("done", "status", "attempt", "worker")


def lost_done(record: Sequence[str | None], after: str) -> list[Event]:
    """The `done` event of a job whose stream has expired, if it comes after `after`; from its `DONE_FIELDS`."""
    done, status, attempt, worker = record
    if done is None or _event_order(done) <= _event_order(after):
        return []
    data = {"status": status, "attempt": int(attempt or 0)}
    return [Event(done, "done", data if worker is None else {**data, "worker": worker})]


def _event_order(event_id: str) -> tuple[int, int]:
    milliseconds, _, number = event_id.partition("-")
    return int(milliseconds), int(number or 0)


def _hint(entry: Sequence[Any]) -> Hint:
    return Hint(entry[0], entry[1], int(entry[2]))


def _job(job_id: str, reply: Sequence[Any] | None) -> Job:
    if not reply:
        raise UnknownJob(job_id)
    return decode_job(snapshot(reply))


def snapshot(reply: Sequence[Any]) -> Snapshot:
    """What the script's function of this name answered."""
    job_id, fields, position, pace, num_running, num_workers, now_ms = reply
    record = dict(zip(fields[::2], fields[1::2], strict=True))
    pace_s = float(pace or 0) or None
    return Snapshot(job_id, record, now_ms, None if position < 0 else position, pace_s, num_running, num_workers)

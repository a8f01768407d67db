"""The job store in Redis: each call is one run of `store.lua`, so it happens wholly or not at all."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, TypeVar

import redis

from tasks import event_codec, operator_codec
from tasks import store_codec as codec
from tasks.broker_queues import depths, queue_lists
from tasks.connection import BLOCK_SLICE_S, connect, explain, where
from tasks.dead_letters import ANY_LETTER, DeadLetter, DeadLetterPage, LetterFilter
from tasks.errors import SafelightError, StoreUnavailable
from tasks.job import Job, JobError, JobMetrics, JobStatus, Progress
from tasks.quotas import NO_QUOTAS, Quotas
from tasks.store import (
    Claimed,
    Created,
    Drained,
    Event,
    Hint,
    JobFacts,
    Lease,
    NewJob,
    NotClaimed,
    Outcome,
    Page,
    QueueStats,
    Reaped,
    TenantRows,
    Totals,
    Written,
)
from tasks.store_codec import Call

__all__ = ["RedisJobStore", "connect"]

T = TypeVar("T")
_MAX_LOST_CLAIMS = 10_000
_PARTS = ("store.lua", "turns.lua", "operator.lua")
SCRIPT = "\n".join(files("tasks").joinpath(name).read_text("utf-8") for name in _PARTS)


class RedisJobStore:
    """`JobStore` over a client of `connect`. Thread-safe. `clock` (ms) replaces the server's time; only for tests."""

    def __init__(
        self,
        client: redis.Redis,
        key_prefix: str = "safelight:",
        result_ttl_s: float = 7 * 86_400.0,
        max_queued: int = 100_000,
        dead_letter_ttl_s: float = 30 * 86_400.0,
        quotas: Quotas = NO_QUOTAS,
        *,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.quotas = quotas
        self._quotas_text = quotas.text
        self._client = client
        self._prefix = key_prefix
        self._lifetimes = codec.Lifetimes(int(result_ttl_s * 1000), int(max(result_ttl_s, dead_letter_ttl_s) * 1000))
        self._max_queued = max_queued
        self._clock = clock
        self._lost_claims: dict[str, str] = {}
        self._script = client.register_script(SCRIPT)

    def _run(self, call: Call[T]) -> T:
        keys, args = codec.script_arguments(call, self._prefix, self._lifetimes, self._clock, self._quotas_text)
        return call.decode(self._guarded(lambda: self._script(keys, args)))

    def _guarded(self, command: Callable[[], Any]) -> Any:
        try:
            return command()
        except (redis.RedisError, OSError) as error:
            known = explain(error, where(self._client))
            if known is None:
                raise
            raise known from error

    # -- the producer's side ------------------------------------------------------------------------------------

    def create(self, jobs: Sequence[NewJob]) -> Sequence[Created | SafelightError]:
        return [answer for call in codec.create(jobs, self._max_queued) for answer in self._run(call)]

    def get(self, job_id: str) -> Job:
        return self._run(codec.get(job_id))

    def list(
        self, *, status: JobStatus | None = None, group: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page:
        return self._run(codec.list_jobs(status, group, limit, cursor))

    def abort(self, job_id: str) -> Job:
        return self._run(codec.abort(job_id))

    def abort_group(self, group: str) -> Sequence[str]:
        cursor, job_ids = self._run(codec.abort_group(group, ""))
        while cursor:
            cursor, more = self._run(codec.abort_group(group, cursor))
            job_ids += more
        return job_ids

    def events(self, job_id: str, *, after: str = "0", block_s: float = 0.0) -> Sequence[Event]:
        deadline = time.monotonic() + block_s
        found = self._read(job_id, after, 0.0)
        if not found and (made := self._unwritten(job_id, after)):
            found = self._read(job_id, after, 0.0) or made  # the job may have moved between the two looks
        while not found and (left_s := deadline - time.monotonic()) > 0:
            found = self._read(job_id, after, min(left_s, BLOCK_SLICE_S))
        return found

    def events_of(self, after: Mapping[str, str], *, block_s: float) -> Sequence[tuple[str, Event]]:
        """Events of each job after the id given for it, with whose they are; waits up to `block_s` for the first one.

        Of a job without a stream there are none, neither `queued` before its first claim nor `done` long after its
        end: look at its record first, and now and then.
        """
        streams: dict[Any, Any] = {f"{self._prefix}events:{job_id}": event_id for job_id, event_id in after.items()}
        block_ms = max(1, int(min(block_s, BLOCK_SLICE_S) * 1000))
        reply = self._guarded(lambda: self._client.xread(streams, block=block_ms))
        start = len(self._prefix) + len("events:")
        return [(key[start:], event) for key, event in event_codec.decode_streams(reply)]

    def _read(self, job_id: str, after: str, block_s: float) -> Sequence[Event]:
        key = f"{self._prefix}events:{job_id}"
        block_ms = max(1, int(block_s * 1000)) if block_s else None
        return event_codec.decode_events(self._guarded(lambda: self._client.xread({key: after}, block=block_ms)))

    def _unwritten(self, job_id: str, after: str) -> Sequence[Event]:
        key = f"{self._prefix}job:{job_id}"
        return event_codec.unwritten(self._guarded(lambda: self._client.hmget(key, event_codec.EVENT_FIELDS)), after)

    # -- the worker's side --------------------------------------------------------------------------------------

    def claim(self, job_id: str, worker: str, lease_s: float) -> Claimed | NotClaimed:
        """A claim whose answer was lost, here or within redis-py, is answered alike when it is made again."""
        return self._claimed(job_id, lambda token: codec.claim(job_id, worker, lease_s, token))

    def take(self, model: str, hint: str, worker: str, lease_s: float) -> Claimed | NotClaimed:
        """As `claim`, when it is made again for the same hint."""
        return self._claimed(hint, lambda token: codec.take(model, hint, worker, lease_s, token))

    def _claimed(self, job_id: str, call: Callable[[str], Call[Claimed | NotClaimed]]) -> Claimed | NotClaimed:
        token = self._lost_claims.pop(job_id, None) or secrets.token_hex(8)
        try:
            return self._run(call(token))
        except StoreUnavailable:
            if len(self._lost_claims) < _MAX_LOST_CLAIMS:
                self._lost_claims[job_id] = token
            raise

    def wake(self) -> Sequence[Hint]:
        """Without limits on running rows no turn is ever blocked, and nothing is asked."""
        if not self.quotas.limits_running:
            return []
        return self._run(codec.wake())

    def renew(self, leases: Mapping[str, int], lease_s: float) -> Mapping[str, Lease]:
        return self._run(codec.renew(leases, lease_s))

    def aborts_wanted(self, job_ids: Sequence[str]) -> frozenset[str]:
        return self._run(codec.aborts_wanted(job_ids)) if job_ids else frozenset()

    def report(self, progress: Mapping[tuple[str, int], Progress]) -> None:
        if progress:
            self._run(codec.report(progress))

    def preview(self, job_id: str, attempt: int, data: Mapping[str, Any]) -> Written:
        return self._run(codec.preview(job_id, attempt, data))

    def isolate(self, job_id: str, attempt: int, *, alone: bool = True) -> Written:
        return self._run(codec.isolate(job_id, attempt, alone=alone))

    def finish(self, job_id: str, attempt: int, outcome: Outcome) -> Written:
        return self._run(codec.finish(job_id, attempt, outcome))

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
        return self._run(codec.retry(job_id, attempt, error, max_attempts, metrics or JobMetrics(), traceback))

    def release(self, job_id: str, attempt: int) -> Written:
        return self._run(codec.release(job_id, attempt))

    def reap(self, max_attempts: int, limit: int = 100) -> Sequence[Reaped]:
        return self._run(codec.reap(max_attempts, limit))

    def stale_hints(self, limit: int = 100) -> Sequence[Hint]:
        models = self.known_models()
        return self._run(codec.stale_hints(limit, self._broker_depths(models)))

    def _broker_depths(self, models: Sequence[str]) -> dict[str, int]:
        pipeline = self._client.pipeline(transaction=False)
        for model in models:
            for name in queue_lists(model):
                pipeline.llen(name)
        lengths = self._guarded(pipeline.execute)
        return depths(models, lengths)

    # -- observation --------------------------------------------------------------------------------------------

    def queues(self, models: Sequence[str]) -> Sequence[QueueStats]:
        return self._run(codec.queues(models))

    def known_models(self) -> Sequence[str]:
        """Models that had a job in the last month, whether anybody serves them or not. Of this store alone."""
        return self._run(codec.models())

    def tenants(self) -> Sequence[TenantRows]:
        return self._run(codec.tenants())

    def litter(self, limit: int = 100, lease_s: float = 60.0) -> Sequence[str]:
        return self._run(operator_codec.litter(limit, lease_s))

    def swept(self, job_ids: Sequence[str]) -> None:
        if job_ids:
            self._run(operator_codec.swept(job_ids))

    def beat(self, worker: str, info: Mapping[str, Any], ttl_s: float) -> bool:
        return self._run(operator_codec.beat(worker, info, ttl_s))

    def leave(self, worker: str) -> None:
        self._run(operator_codec.leave(worker))

    def workers(self) -> Sequence[Mapping[str, Any]]:
        return self._run(operator_codec.workers())

    def drain(self, node: str | None) -> Drained:
        return self._run(operator_codec.drain(node))

    def explain(self, job_id: str) -> JobFacts:
        return self._run(codec.explain(job_id))

    def totals(self) -> Totals:
        return self._run(codec.totals())

    def dead_letters(self, limit: int = 100) -> Sequence[str]:
        return self._run(operator_codec.dead_letters(limit))

    def find_dead_letters(
        self, wanted: LetterFilter = ANY_LETTER, *, limit: int = 50, cursor: str | None = None
    ) -> DeadLetterPage:
        return self._run(operator_codec.find_dead_letters(wanted, limit, cursor))

    def dead_letter(self, job_id: str) -> DeadLetter:
        return self._run(operator_codec.dead_letter(job_id))

    def drop_dead_letters(self, job_ids: Sequence[str]) -> int:
        return self._run(operator_codec.drop_dead_letters(job_ids)) if job_ids else 0

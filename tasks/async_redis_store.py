"""The producer's side of the Redis store for asyncio. The same script and the same codec; only the waiting differs."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

import redis
import redis.asyncio

from tasks import event_codec, operator_codec
from tasks import store_codec as codec
from tasks.connection import BLOCK_SLICE_S, explain, where
from tasks.dead_letters import ANY_LETTER, DeadLetter, DeadLetterPage, LetterFilter
from tasks.errors import SafelightError
from tasks.job import Job, JobStatus
from tasks.quotas import NO_QUOTAS, Quotas
from tasks.redis_store import SCRIPT
from tasks.store import Created, Drained, Event, JobFacts, NewJob, Page, QueueStats, TenantRows, Totals
from tasks.store_codec import Call

T = TypeVar("T")


class AsyncRedisJobStore:
    """What `JobStore` says of these calls holds here too. For one event loop, over a client of `async_connect`."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        key_prefix: str = "safelight:",
        result_ttl_s: float = 7 * 86_400.0,
        max_queued: int = 100_000,
        dead_letter_ttl_s: float = 30 * 86_400.0,
        quotas: Quotas = NO_QUOTAS,
    ) -> None:
        self.quotas = quotas
        self._quotas_text = quotas.text
        self._client = client
        self._prefix = key_prefix
        self._lifetimes = codec.Lifetimes(int(result_ttl_s * 1000), int(max(result_ttl_s, dead_letter_ttl_s) * 1000))
        self._max_queued = max_queued
        self._script = client.register_script(SCRIPT)

    async def _run(self, call: Call[T]) -> T:
        keys, args = codec.script_arguments(call, self._prefix, self._lifetimes, None, self._quotas_text)
        return call.decode(await self._guarded(self._script(keys, args)))

    async def _guarded(self, command: Awaitable[Any]) -> Any:
        try:
            return await command
        except (redis.RedisError, OSError) as error:
            known = explain(error, where(self._client))
            if known is None:
                raise
            raise known from error

    async def create(self, jobs: Sequence[NewJob]) -> Sequence[Created | SafelightError]:
        return [answer for call in codec.create(jobs, self._max_queued) for answer in await self._run(call)]

    async def get(self, job_id: str) -> Job:
        return await self._run(codec.get(job_id))

    async def list(
        self, *, status: JobStatus | None = None, group: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page:
        return await self._run(codec.list_jobs(status, group, limit, cursor))

    async def abort(self, job_id: str) -> Job:
        return await self._run(codec.abort(job_id))

    async def abort_group(self, group: str) -> Sequence[str]:
        cursor, job_ids = await self._run(codec.abort_group(group, ""))
        while cursor:
            cursor, more = await self._run(codec.abort_group(group, cursor))
            job_ids += more
        return job_ids

    async def events(self, job_id: str, *, after: str = "0", block_s: float = 0.0) -> Sequence[Event]:
        deadline = time.monotonic() + block_s
        found = await self._read(job_id, after, 0.0)
        if not found and (made := await self._unwritten(job_id, after)):
            found = await self._read(job_id, after, 0.0) or made  # the job may have moved between the two looks
        while not found and (left_s := deadline - time.monotonic()) > 0:
            found = await self._read(job_id, after, min(left_s, BLOCK_SLICE_S))
        return found

    async def events_of(self, after: Mapping[str, str], *, block_s: float) -> Sequence[tuple[str, Event]]:
        """Events of each job after the id given for it, with whose they are; waits up to `block_s` for the first one.

        Of a job without a stream there are none, neither `queued` before its first claim nor `done` long after its
        end: look at its record first, and now and then.
        """
        streams: dict[Any, Any] = {f"{self._prefix}events:{job_id}": event_id for job_id, event_id in after.items()}
        reply = await self._guarded(self._client.xread(streams, block=max(1, int(block_s * 1000))))
        start = len(self._prefix) + len("events:")
        return [(key[start:], event) for key, event in event_codec.decode_streams(reply)]

    async def _read(self, job_id: str, after: str, block_s: float) -> Sequence[Event]:
        key = f"{self._prefix}events:{job_id}"
        block_ms = max(1, int(block_s * 1000)) if block_s else None
        return event_codec.decode_events(await self._guarded(self._client.xread({key: after}, block=block_ms)))

    async def _unwritten(self, job_id: str, after: str) -> Sequence[Event]:
        key = f"{self._prefix}job:{job_id}"
        return event_codec.unwritten(await self._guarded(self._client.hmget(key, event_codec.EVENT_FIELDS)), after)

    async def queues(self, models: Sequence[str]) -> Sequence[QueueStats]:
        return await self._run(codec.queues(models))

    async def tenants(self) -> Sequence[TenantRows]:
        return await self._run(codec.tenants())

    async def workers(self) -> Sequence[Mapping[str, Any]]:
        return await self._run(operator_codec.workers())

    async def drain(self, node: str | None) -> Drained:
        return await self._run(operator_codec.drain(node))

    async def explain(self, job_id: str) -> JobFacts:
        return await self._run(codec.explain(job_id))

    async def totals(self) -> Totals:
        return await self._run(codec.totals())

    async def dead_letters(self, limit: int = 100) -> Sequence[str]:
        return await self._run(operator_codec.dead_letters(limit))

    async def find_dead_letters(
        self, wanted: LetterFilter = ANY_LETTER, *, limit: int = 50, cursor: str | None = None
    ) -> DeadLetterPage:
        return await self._run(operator_codec.find_dead_letters(wanted, limit, cursor))

    async def dead_letter(self, job_id: str) -> DeadLetter:
        return await self._run(operator_codec.dead_letter(job_id))

    async def drop_dead_letters(self, job_ids: Sequence[str]) -> int:
        return await self._run(operator_codec.drop_dead_letters(job_ids)) if job_ids else 0

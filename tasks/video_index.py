"""The videos that were made through `/v1/videos`, by time of creation: what its list shows and its DELETE takes out."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Literal

import redis
import redis.asyncio

from tasks.connection import explain, where
from tasks.job import Job

#: Looked at when one is added: entries whose record has expired go, so that the index is bounded by the records.
_TRIM = 16


class VideoIndex:
    """A sorted set of job ids. The jobs themselves are in the store. Any call may raise `StoreUnavailable`."""

    def __init__(self, client: redis.asyncio.Redis, key_prefix: str = "safelight:") -> None:
        self._client = client
        self._prefix = key_prefix
        self._key = f"{key_prefix}videos"

    async def add(self, job: Job) -> None:
        """Adding it again changes nothing."""
        await self._run(self._client.zadd(self._key, {job.id: int(job.created_at.timestamp() * 1000)}, nx=True))
        oldest: list[str] = await self._run(self._client.zrange(self._key, 0, _TRIM - 1))
        gone = [job_id for job_id in oldest if not await self._run(self._client.exists(f"{self._prefix}job:{job_id}"))]
        await self.forget(gone)

    async def has(self, job_id: str) -> bool:
        return await self._run(self._client.zscore(self._key, job_id)) is not None

    async def forget(self, job_ids: Sequence[str]) -> int:
        """Take them out; how many were in."""
        return int(await self._run(self._client.zrem(self._key, *job_ids))) if job_ids else 0

    async def page(self, after: str | None, limit: int, order: Literal["asc", "desc"]) -> Sequence[str] | None:
        """At most `limit` ids that follow `after`; None: that one is not in the index."""
        rank = None if after is None else await self._run(self._client.zrank(self._key, after))
        if rank is None and after is not None:
            return None
        if order == "asc":
            start = 0 if rank is None else rank + 1
            return await self._ids(start, start + limit - 1)
        if rank is None:
            newest: list[str] = await self._run(self._client.zrevrange(self._key, 0, limit - 1))
            return newest
        return (await self._ids(max(0, rank - limit), rank - 1))[::-1] if rank else []

    async def _ids(self, first: int, last: int) -> list[str]:
        found: list[str] = await self._run(self._client.zrange(self._key, first, last))
        return found

    async def _run(self, command: Awaitable[Any] | Any) -> Any:
        try:
            return await command
        except (redis.RedisError, OSError) as error:
            known = explain(error, where(self._client))
            if known is None:
                raise
            raise known from error

"""`Client` for asyncio, with the same names. Messages go out on a thread: kombu has no asyncio side."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Any

from tasks.async_redis_store import AsyncRedisJobStore
from tasks.client import READ_S, RETRY_PAUSE_S
from tasks.connection import async_connect
from tasks.errors import SafelightError, StoreUnavailable, WaitTimeout
from tasks.explain import Explanation, explain
from tasks.hints import Hinter
from tasks.job import Job
from tasks.models import Models
from tasks.operator_client import AsyncOperatorCalls
from tasks.quotas import DEFAULT_TENANT, check_tenant, load_quotas
from tasks.result_links import ResultLinks
from tasks.settings import Settings, given_settings
from tasks.store import Created, Event, NewJob
from tasks.submission import RequestLike, accepted, hints_for, new_job, one_form
from tasks.tracing import NO_TRACING, Tracing
from tasks.webhook_queue import AsyncWebhookQueue


class AsyncClient(AsyncOperatorCalls):
    """For one event loop. Each call holds what `Client` says of it."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        redis_url: str | None = None,
        models: Models | None = None,
        tenant: str = DEFAULT_TENANT,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._tracing = tracing
        self.tenant = check_tenant(tenant)
        settings = given_settings(settings)
        self.settings = settings if redis_url is None else settings.model_copy(update={"redis_url": redis_url})
        self._given_models = models
        self._redis = async_connect(self.settings)
        self.store = AsyncRedisJobStore(
            self._redis,
            self.settings.key_prefix,
            self.settings.result_ttl_s,
            self.settings.max_queued,
            self.settings.dead_letter_ttl_s,
            load_quotas(self.settings.tenants),
        )
        self._hinter = Hinter(self.settings)
        self._webhooks = AsyncWebhookQueue(self._redis, self.settings.key_prefix)
        self._links = ResultLinks(self.settings)

    async def submit(
        self,
        request: RequestLike | None = None,
        *,
        idempotency_key: str | None = None,
        job_id: str | None = None,
        tenant: str | None = None,
        **fields: Any,
    ) -> Job:
        wanted = one_form(request, fields)
        return (await self.create(wanted, idempotency_key=idempotency_key, job_id=job_id, tenant=tenant)).job

    async def create(
        self,
        request: RequestLike,
        *,
        idempotency_key: str | None = None,
        job_id: str | None = None,
        tenant: str | None = None,
    ) -> Created:
        with self._tracing.span("submit", kind="producer") as span:
            new = new_job(
                request, self.models, idempotency_key=idempotency_key, job_id=job_id, tenant=tenant or self.tenant
            )
            span.set("safelight.job_id", new.job_id)
            created = accepted(await self.store.create([new]))
            await asyncio.to_thread(self._hinter.publish, hints_for(created))
        return created[0]

    async def submit_many(self, requests: Iterable[RequestLike], *, tenant: str | None = None) -> list[Job]:
        with self._tracing.span("submit", kind="producer") as span:
            jobs = [new_job(request, self.models, tenant=tenant or self.tenant) for request in requests]
            span.set("safelight.num_jobs", len(jobs))
            return [answer.job for answer in await self._create_all(jobs)]

    async def _create_all(self, jobs: Sequence[NewJob]) -> list[Created]:
        answers = await self.store.create(jobs)
        try:
            created = accepted(answers)
        except SafelightError:
            for answer in answers:
                if isinstance(answer, Created):
                    await self.store.abort(answer.job.id)
            raise
        await asyncio.to_thread(self._hinter.publish, hints_for(created))
        return created

    async def get(self, job_id: str) -> Job:
        return await self.store.get(job_id)

    async def wait(self, job_id: str, timeout_s: float) -> Job:
        deadline = time.monotonic() + timeout_s
        after = "0"
        while True:
            left_s = deadline - time.monotonic()
            try:
                job = await self.store.get(job_id)
                if job.status.is_terminal:
                    return job
                if left_s <= 0:
                    raise WaitTimeout(f"job {job_id} is still {job.status} after {timeout_s:g} s; it goes on")
                after = await self._watch(job_id, after, left_s)
            except StoreUnavailable:
                if left_s <= 0:
                    raise
                await asyncio.sleep(min(RETRY_PAUSE_S, left_s))

    async def _watch(self, job_id: str, after: str, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            events = await self.store.events(job_id, after=after, block_s=min(left_s, READ_S))
            if not events or events[-1].type == "done":
                break
            after = events[-1].id
        return after

    async def events(self, job_id: str, *, after: str = "0") -> AsyncIterator[Event]:
        has_ended = (await self.store.get(job_id)).status.is_terminal
        while True:
            events = await self.store.events(job_id, after=after, block_s=0.0 if has_ended else READ_S)
            for event in events:
                yield event
                if event.type == "done":
                    return
                after = event.id
            if not events:
                if has_ended:
                    return
                has_ended = (await self.store.get(job_id)).status.is_terminal

    async def explain(self, job_id: str) -> Explanation:
        return explain(await self.store.explain(job_id))

    async def abort(self, job_id: str) -> Job:
        return await self.store.abort(job_id)

    async def abort_group(self, group: str) -> Sequence[str]:
        return await self.store.abort_group(group)

    async def result_urls(self, job_id: str, expires_s: int = 3_600) -> list[str]:
        return await asyncio.to_thread(self._links.urls, (await self.store.get(job_id)).outputs, expires_s)

    async def replay(self, job_id: str, *, tenant: str | None = None) -> Job:
        return (await self.create((await self.store.get(job_id)).request, tenant=tenant)).job

    async def close(self) -> None:
        await asyncio.to_thread(self._hinter.close)
        await self._redis.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

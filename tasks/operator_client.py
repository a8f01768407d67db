"""What an operator asks of a client: dead letters, webhooks that were given up, drains. Blocking and for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from tasks.async_redis_store import AsyncRedisJobStore
from tasks.dead_letters import DeadLetter, DeadLetterPage, LetterFilter
from tasks.errors import UnknownWebhook, UnknownWorker
from tasks.hints import Hinter
from tasks.job import ErrorType, Job
from tasks.models import Models, load_models
from tasks.quotas import DEFAULT_TENANT
from tasks.redis_store import RedisJobStore
from tasks.settings import Settings
from tasks.store import Drained, NewJob
from tasks.submission import accepted, hints_for, new_job
from tasks.webhook_queue import AsyncWebhookQueue, WebhookLetter, WebhookQueue


def repeated(letter: DeadLetter, models: Models, tenant: str = DEFAULT_TENANT) -> NewJob:
    """Raises `InvalidRequest` if the models no longer serve such a request."""
    return replace(new_job(letter.job.request, models, tenant=tenant), retry_of=letter.id)


def _asked(node: str, drained: Drained) -> list[str]:
    if not drained.asked:
        raise UnknownWorker(node, drained.live)
    return list(drained.asked)


class _Serves:
    """The models that jobs are made for, read when the first one is: to look at jobs, nobody needs the file."""

    settings: Settings
    _given_models: Models | None

    @cached_property
    def models(self) -> Models:
        return self._given_models or load_models(self.settings.models)


class OperatorCalls(_Serves):
    """Any call may raise `StoreUnavailable`."""

    store: RedisJobStore
    tenant: str
    _hinter: Hinter
    _webhooks: WebhookQueue

    def dead_letters(
        self,
        *,
        model: str | None = None,
        error_type: ErrorType | None = None,
        older_than_s: float | None = None,
        newer_than_s: float | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> DeadLetterPage:
        """Failed jobs that wait for an operator, newest first, without their faults."""
        wanted = LetterFilter(model, error_type, older_than_s, newer_than_s)
        return self.store.find_dead_letters(wanted, limit=limit, cursor=cursor)

    def dead_letter(self, job_id: str) -> DeadLetter:
        """With what each failed attempt left. Raises `UnknownDeadLetter`."""
        return self.store.dead_letter(job_id)

    def retry_dead_letter(self, job_id: str, *, tenant: str | None = None) -> Job:
        """A new job of the same resolved request, whose `retry_of` is the letter; the letter leaves the index.

        Of two callers one gets `UnknownDeadLetter`. Raises `InvalidRequest` and `QueueFull`, and the letter stays.
        """
        new = repeated(self.store.dead_letter(job_id), self.models, tenant or self.tenant)
        [created] = accepted(self.store.create([new]))
        self._hinter.publish(hints_for([created]))
        return created.job

    def purge_dead_letters(self, job_ids: Sequence[str]) -> int:
        """Seen to: they leave the index, and their records stay as long as any other's. How many there were."""
        return self.store.drop_dead_letters(job_ids)

    def webhook_letters(self, limit: int = 100) -> list[WebhookLetter]:
        """Webhook deliveries that were given up, newest first."""
        return self._webhooks.letters(limit)

    def retry_webhook(self, job_id: str) -> None:
        """Deliver again, now, with the same message id. Raises `UnknownWebhook`; `UnknownJob` if its record is gone."""
        self.store.get(job_id)
        if not self._webhooks.revive([job_id]):
            raise UnknownWebhook(job_id)

    def purge_webhooks(self, job_ids: Sequence[str]) -> int:
        """Forget these letters; how many there were."""
        return self._webhooks.drop(job_ids)

    def drain(self, node: str) -> list[str]:
        """Ask a worker to finish what fits into its grace, give the rest back and leave; the names of those asked.

        `node` is a worker's whole name, or the part before its process id. Raises `UnknownWorker`.
        """
        return _asked(node, self.store.drain(node))

    def drain_all(self) -> list[str]:
        """`drain` for every worker that is up now."""
        return list(self.store.drain(None).asked)


class AsyncOperatorCalls(_Serves):
    """Each call holds what `OperatorCalls` says of it."""

    store: AsyncRedisJobStore
    tenant: str
    _hinter: Hinter
    _webhooks: AsyncWebhookQueue

    async def dead_letters(
        self,
        *,
        model: str | None = None,
        error_type: ErrorType | None = None,
        older_than_s: float | None = None,
        newer_than_s: float | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> DeadLetterPage:
        wanted = LetterFilter(model, error_type, older_than_s, newer_than_s)
        return await self.store.find_dead_letters(wanted, limit=limit, cursor=cursor)

    async def dead_letter(self, job_id: str) -> DeadLetter:
        return await self.store.dead_letter(job_id)

    async def retry_dead_letter(self, job_id: str, *, tenant: str | None = None) -> Job:
        new = repeated(await self.store.dead_letter(job_id), self.models, tenant or self.tenant)
        [created] = accepted(await self.store.create([new]))
        await asyncio.to_thread(self._hinter.publish, hints_for([created]))
        return created.job

    async def purge_dead_letters(self, job_ids: Sequence[str]) -> int:
        return await self.store.drop_dead_letters(job_ids)

    async def webhook_letters(self, limit: int = 100) -> list[WebhookLetter]:
        return await self._webhooks.letters(limit)

    async def retry_webhook(self, job_id: str) -> None:
        await self.store.get(job_id)
        if not await self._webhooks.revive([job_id]):
            raise UnknownWebhook(job_id)

    async def purge_webhooks(self, job_ids: Sequence[str]) -> int:
        return await self._webhooks.drop(job_ids)

    async def drain(self, node: str) -> list[str]:
        return _asked(node, await self.store.drain(node))

    async def drain_all(self) -> list[str]:
        return list((await self.store.drain(None)).asked)

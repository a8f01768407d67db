"""The producer's face: submit, watch, abort. Records first, messages second, so that a lost message costs only time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

from tasks.connection import connect
from tasks.errors import SafelightError, StoreUnavailable, WaitTimeout
from tasks.explain import Explanation, explain
from tasks.hints import Hinter
from tasks.job import Job
from tasks.models import Models
from tasks.operator_client import OperatorCalls
from tasks.quotas import DEFAULT_TENANT, check_tenant, load_quotas
from tasks.redis_store import RedisJobStore
from tasks.result_links import ResultLinks
from tasks.settings import Settings, given_settings
from tasks.store import Created, Event, NewJob
from tasks.submission import RequestLike, accepted, hints_for, new_job, one_form
from tasks.tracing import NO_TRACING, Tracing
from tasks.webhook_queue import WebhookQueue

#: One look at a job's events; the record is read again after each.
READ_S = 10.0
RETRY_PAUSE_S = 0.5


class Client(OperatorCalls):
    """Talks to Redis only, and signs URLs of the object store. Thread-safe. Any call may raise `StoreUnavailable`.

    `tenant`: for whom it submits, unless a call says otherwise; the caller is trusted with that. A models file is read
    by the first call that makes a job, which raises `ConfigError` if it cannot be.
    """

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
        self._redis = connect(self.settings)
        self.store = RedisJobStore(
            self._redis,
            self.settings.key_prefix,
            self.settings.result_ttl_s,
            self.settings.max_queued,
            self.settings.dead_letter_ttl_s,
            load_quotas(self.settings.tenants),
        )
        self._hinter = Hinter(self.settings)
        self._webhooks = WebhookQueue(self._redis, self.settings.key_prefix)
        self._links = ResultLinks(self.settings)

    def submit(
        self,
        request: RequestLike | None = None,
        *,
        idempotency_key: str | None = None,
        job_id: str | None = None,
        tenant: str | None = None,
        **fields: Any,
    ) -> Job:
        """Accept a job, given as a request, a mapping or keywords. Raises as `create` does."""
        wanted = one_form(request, fields)
        return self.create(wanted, idempotency_key=idempotency_key, job_id=job_id, tenant=tenant).job

    def create(
        self,
        request: RequestLike,
        *,
        idempotency_key: str | None = None,
        job_id: str | None = None,
        tenant: str | None = None,
    ) -> Created:
        """`submit`, and whether the job is new. Raises `InvalidRequest`, `QueueFull`, `IdempotencyConflict`."""
        with self._tracing.span("submit", kind="producer") as span:
            new = new_job(
                request, self.models, idempotency_key=idempotency_key, job_id=job_id, tenant=tenant or self.tenant
            )
            span.set("safelight.job_id", new.job_id)
            created = accepted(self.store.create([new]))
            self._hinter.publish(hints_for(created))
        return created[0]

    def submit_many(self, requests: Iterable[RequestLike], *, tenant: str | None = None) -> list[Job]:
        """All or none: each is checked first, and if the queue fills up on the way, those before are aborted.

        `StoreUnavailable` leaves it open, as an answer may be lost after the jobs were made: a hundred at a time are
        sent, and what arrived is run. Give them a `group` of their own, and `list` or `abort_group` finds them.
        """
        with self._tracing.span("submit", kind="producer") as span:
            jobs = [new_job(request, self.models, tenant=tenant or self.tenant) for request in requests]
            span.set("safelight.num_jobs", len(jobs))
            return [created.job for created in self._create_all(jobs)]

    def _create_all(self, jobs: Sequence[NewJob]) -> list[Created]:
        answers = self.store.create(jobs)
        try:
            created = accepted(answers)
        except SafelightError:
            for answer in answers:
                if isinstance(answer, Created):
                    self.store.abort(answer.job.id)
            raise
        self._hinter.publish(hints_for(created))
        return created

    def get(self, job_id: str) -> Job:
        """The job as it is now. Raises `UnknownJob`."""
        return self.store.get(job_id)

    def wait(self, job_id: str, timeout_s: float) -> Job:
        """The job once it has ended. Rides out an outage of the store. Raises `WaitTimeout`, `UnknownJob`."""
        deadline = time.monotonic() + timeout_s
        after = "0"
        while True:
            left_s = deadline - time.monotonic()
            try:
                job = self.store.get(job_id)
                if job.status.is_terminal:
                    return job
                if left_s <= 0:
                    raise WaitTimeout(f"job {job_id} is still {job.status} after {timeout_s:g} s; it goes on")
                after = self._watch(job_id, after, left_s)
            except StoreUnavailable:
                if left_s <= 0:
                    raise
                time.sleep(min(RETRY_PAUSE_S, left_s))

    def _watch(self, job_id: str, after: str, timeout_s: float) -> str:
        """Until `done`, or nothing for `READ_S`, or the time is over; the last event's id."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            events = self.store.events(job_id, after=after, block_s=min(left_s, READ_S))
            if not events or events[-1].type == "done":
                break
            after = events[-1].id
        return after

    def events(self, job_id: str, *, after: str = "0") -> Iterator[Event]:
        """Events after the given id, as they come; ends after `done`. Raises `UnknownJob`."""
        has_ended = self.store.get(job_id).status.is_terminal
        while True:
            events = self.store.events(job_id, after=after, block_s=0.0 if has_ended else READ_S)
            for event in events:
                yield event
                if event.type == "done":
                    return
                after = event.id
            if not events:
                if has_ended:
                    return  # the caller has seen `done`
                has_ended = self.store.get(job_id).status.is_terminal

    def explain(self, job_id: str) -> Explanation:
        """Why it waits, with whom it runs, what it cost. Raises `UnknownJob`."""
        return explain(self.store.explain(job_id))

    def abort(self, job_id: str) -> Job:
        """Ask for the end: a queued job ends now, a running one, with `abort_requested`, at its next step. Raises
        `UnknownJob`."""
        return self.store.abort(job_id)

    def abort_group(self, group: str) -> Sequence[str]:
        """Abort every live job of the group; their ids."""
        return self.store.abort_group(group)

    def result_urls(self, job_id: str, expires_s: int = 3_600) -> list[str]:
        """A presigned URL for each output so far. Raises `UnknownJob`."""
        return self._links.urls(self.store.get(job_id).outputs, expires_s)

    def replay(self, job_id: str, *, tenant: str | None = None) -> Job:
        """A new job of the same resolved request. Raises `UnknownJob`, and as `create` does."""
        return self.create(self.store.get(job_id).request, tenant=tenant).job

    def close(self) -> None:
        """Give the connections back; leaving a `with` does it as well."""
        self._hinter.close()
        self._redis.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

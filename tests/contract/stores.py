"""Both job stores behind one face, with a clock that the test turns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from tasks.connection import connect
from tasks.job import JobError, JobMetrics, JobStatus, Output
from tasks.memory import MemoryJobStore
from tasks.models import Models, load_models
from tasks.quotas import DEFAULT_TENANT, NO_QUOTAS, Quotas
from tasks.redis_store import RedisJobStore
from tasks.settings import Settings
from tasks.store import Claimed, Created, JobStore, NewJob, Outcome
from tasks.submission import new_job

MODELS: Models = load_models(None)
START_MS = 1_700_000_000_000
WORKER = "worker-1"
LEASE_S = 10.0


@dataclass
class Clock:
    ms: int = START_MS

    def __call__(self) -> int:
        return self.ms

    def advance(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


@dataclass
class Lab:
    """A store, its clock, and what an outside program can do."""

    store: JobStore
    clock: Clock
    #: Writes an abort key as a program would that knows nothing but its name.
    want_abort: Callable[[str], Any]
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def new(
        self, job_id: str | None = None, *, key: str | None = None, tenant: str = DEFAULT_TENANT, **fields: Any
    ) -> NewJob:
        job_id = job_id or f"job-{next(self.numbers)}"
        wanted = {"prompt": "a red boat", "seed": 7, **fields}
        return new_job(wanted, MODELS, idempotency_key=key, job_id=job_id, tenant=tenant)

    def create(self, job_id: str | None = None, **fields: Any) -> str:
        [created] = self.store.create([self.new(job_id, **fields)])
        assert isinstance(created, Created), created
        return created.job.id

    def claim(self, job_id: str, lease_s: float = LEASE_S) -> Claimed:
        claimed = self.store.claim(job_id, WORKER, lease_s)
        assert isinstance(claimed, Claimed), claimed
        return claimed

    def take(self, model: str = "tiny", hint: str = "nobody") -> str | None:
        """A turn; the job that it claimed."""
        claimed = self.store.take(model, hint, WORKER, LEASE_S)
        return claimed.job.id if isinstance(claimed, Claimed) else None

    def running(self, **fields: Any) -> tuple[str, int]:
        job_id = self.create(**fields)
        return job_id, self.claim(job_id).attempt

    def crash(self, job_id: str, *, alone: bool = False, max_attempts: int = 3) -> JobStatus:
        """Claim the job and let the lease run out."""
        claimed = self.claim(job_id)
        if alone:
            self.store.isolate(job_id, claimed.attempt)
        self.clock.advance(LEASE_S)
        [reaped] = self.store.reap(max_attempts)
        return reaped.status

    def status(self, job_id: str) -> JobStatus:
        return self.store.get(job_id).status

    def types(self, job_id: str) -> Sequence[str]:
        return [event.type for event in self.store.events(job_id)]


def memory_lab(
    *,
    max_queued: int = 1000,
    result_ttl_s: float = 3600.0,
    dead_letter_ttl_s: float = 0.0,
    quotas: Quotas = NO_QUOTAS,
    **options: Any,
) -> Lab:
    clock = Clock()
    store = MemoryJobStore(result_ttl_s, max_queued, dead_letter_ttl_s, quotas, clock=clock, **options)
    return Lab(store, clock, store.abort_wishes.add)


def redis_lab(redis_url: str, **options: Any) -> Lab:
    return client_lab(connect(Settings(redis_url=redis_url)), redis.Redis.from_url(redis_url), **options)


def client_lab(
    client: Any,
    outside: Any,
    *,
    max_queued: int = 1000,
    result_ttl_s: float = 3600.0,
    dead_letter_ttl_s: float = 0.0,
    prefix: str = "safelight:",
    quotas: Quotas = NO_QUOTAS,
) -> Lab:
    clock = Clock()
    store = RedisJobStore(client, prefix, result_ttl_s, max_queued, dead_letter_ttl_s, quotas, clock=clock)
    return Lab(store, clock, lambda job_id: outside.set(f"{prefix}abort:{job_id}", "1"))


def succeeded(seed: int = 7) -> Outcome:
    output = Output(uri="s3://b/k/1/0.png", content_type="image/png", seed=seed, size_bytes=9, sha256="0" * 64)
    metrics = JobMetrics(total_ms=12.5)
    return Outcome(JobStatus.SUCCEEDED, outputs=(output,), warnings=("size rounded",), metrics=metrics)


def model_error(message: str = "it broke") -> JobError:
    return JobError(type="model_error", message=message, retryable=True, attempt=1)


def failed(error: JobError | None = None) -> Outcome:
    return Outcome(JobStatus.FAILED, error=error or model_error())


def beat_of(model: str = "tiny", **speed: Any) -> dict[str, Any]:
    """What a worker says of itself that serves one model."""
    return {"state": "ready", "models": {model: {"speed": {"max_rows": 2, **speed}}}}

"""What the routes stand on, built once for an app and handed down: client, store, bucket, models, settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import Request

from api_stub.hub import EventHub
from tasks.artifacts import ArtifactStore
from tasks.async_client import AsyncClient
from tasks.connection import async_connect
from tasks.models import Models, load_models
from tasks.rate_limit import Rate, RateLimiter
from tasks.settings import Settings
from tasks.tracing import NO_TRACING, Tracing
from tasks.video_index import VideoIndex


@dataclass(frozen=True)
class Backend:
    settings: Settings
    models: Models
    client: AsyncClient
    artifacts: ArtifactStore
    videos: VideoIndex
    hub: EventHub
    #: None: no limit is set.
    limiter: RateLimiter | None = None


@asynccontextmanager
async def connect(settings: Settings, tracing: Tracing = NO_TRACING) -> AsyncIterator[Backend]:
    """Connections are opened at first use, so that an API may start before its Redis."""
    models = load_models(settings.models)
    async with AsyncClient(settings, models=models, tracing=tracing) as client, async_connect(settings) as redis:
        videos, limiter = VideoIndex(redis, settings.key_prefix), _limiter(settings)
        hub = EventHub(client.store)
        try:
            yield Backend(settings, models, client, ArtifactStore(settings), videos, hub, limiter)
        finally:
            await hub.close()
            if limiter is not None:
                await limiter.close()


def _limiter(settings: Settings) -> RateLimiter | None:
    if settings.rate_limit is None:
        return None
    return RateLimiter(async_connect(settings), settings.key_prefix, Rate.parse(settings.rate_limit))


async def spend(request: Request, num_jobs: int = 1) -> None:
    """To be called before jobs are created: counts them for the caller's key. Raises `RateLimited`."""
    limiter = backend_of(request).limiter
    if limiter is not None:
        await limiter.spend(tenant_of(request), num_jobs)


def tenant_of(request: Request) -> str:
    """For whom the caller's key submits."""
    tenant: str = request.state.tenant
    return tenant


def backend_of(request: Request) -> Backend:
    backend: Backend = request.app.state.backend
    return backend

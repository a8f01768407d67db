"""What the routes stand on, built once for an app and handed down: client, store, bucket, models, settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import Request

from tasks.artifacts import ArtifactStore
from tasks.async_client import AsyncClient
from tasks.connection import async_connect
from tasks.models import Models, load_models
from tasks.settings import Settings
from tasks.video_index import VideoIndex


@dataclass(frozen=True)
class Backend:
    settings: Settings
    models: Models
    client: AsyncClient
    artifacts: ArtifactStore
    videos: VideoIndex


@asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[Backend]:
    """Connections are opened at first use, so that an API may start before its Redis."""
    models = load_models(settings.models)
    async with AsyncClient(settings, models=models) as client, async_connect(settings) as redis:
        yield Backend(settings, models, client, ArtifactStore(settings), VideoIndex(redis, settings.key_prefix))


def backend_of(request: Request) -> Backend:
    backend: Backend = request.app.state.backend
    return backend

"""Two APIs with openai's client on them, for the tests that need no settings of their own: a start costs seconds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from tasks.local.servers import RedisServer, S3Server
from tasks.settings import Settings
from tests.integration.openai_stand import Stand, stand

Paths = pytest.TempPathFactory


@contextmanager
def started(name: str, redis_server: RedisServer, s3: S3Server, paths: Paths, **changes: Any) -> Iterator[Stand]:
    settings = Settings(redis_url=redis_server.url, s3_endpoint_url=s3.url, key_prefix=f"{name}:", **changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
        with stand(settings, paths.mktemp(name)) as running:
            patch.undo()  # its connections are made; other tests set their own
            yield running


@pytest.fixture(scope="session")
def shared_stand(redis_server: RedisServer, s3_server: S3Server, tmp_path_factory: Paths) -> Iterator[Stand]:
    with started("openai", redis_server, s3_server, tmp_path_factory) as running:
        yield running


@pytest.fixture(scope="session")
def narrow(redis_server: RedisServer, s3_server: S3Server, tmp_path_factory: Paths) -> Iterator[Stand]:
    """Waits for 0.3 s and reads 30 kB."""
    bounds: dict[str, Any] = {"sync_wait_s": 0.3, "max_body_bytes": 30_000}
    with started("narrow", redis_server, s3_server, tmp_path_factory, **bounds) as running:
        yield running


@pytest.fixture
def at(shared_stand: Stand) -> Iterator[Stand]:
    """The shared stand with no job in it."""
    with redis.Redis.from_url(shared_stand.settings.redis_url) as client:
        client.flushall()
    shared_stand.worker.hold = hold = threading.Event()
    shared_stand.worker.seen.clear()
    yield shared_stand
    hold.set()

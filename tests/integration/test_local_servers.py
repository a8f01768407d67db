"""The embedded servers really start, serve and stop."""

from __future__ import annotations

import redis

from tasks.local.servers import RedisServer, S3Server
from tasks.settings import Settings


def test_both_servers_answer(redis_server: RedisServer, s3_server: S3Server, settings: Settings) -> None:
    assert redis.Redis.from_url(settings.redis_url).ping()
    assert s3_server.process.returncode is None

"""Whether a Redis that answers may hold jobs, by its own INFO. One judgement for every start and for the doctor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis

from tasks.errors import ConfigError

#: kombu and `store.lua` use commands of this version.
OLDEST = (6, 2)
NO_EVICTION = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf"


def version_of(info: Mapping[str, Any]) -> tuple[int, int]:
    """Major and minor of the Redis version that the server is compatible with; (0, 0) if it does not say."""
    words = str(info.get("redis_version", "")).split(".")
    return (int(words[0]), int(words[1])) if len(words) > 1 and words[0].isdigit() and words[1].isdigit() else (0, 0)


def unfit(info: Mapping[str, Any]) -> tuple[str, str] | None:
    """What makes this server lose jobs or fail at the first one, and what to change; None: nothing that INFO shows."""
    policy = str(info.get("maxmemory_policy", "noeviction"))
    version = version_of(info)
    if policy.startswith("allkeys-"):
        return f"maxmemory-policy is {policy}: a full Redis would drop queued jobs without an error", NO_EVICTION
    if (0, 0) < version < OLDEST:
        return f"its version is {info['redis_version']}", "install Redis 6.2 or newer, or Valkey"
    if str(info.get("cluster_enabled", "0")) == "1":
        return "it runs in cluster mode, which Celery cannot use", "set cluster-enabled no, or take another Redis"
    return None


def doubtful(info: Mapping[str, Any]) -> tuple[str, str] | None:
    """What makes it lose less than a job, and what to change. Queues and live records have no TTL, so they stay."""
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if not policy.startswith("volatile-"):
        return None
    lost = "a full Redis would drop results, idempotency keys and wishes to abort"
    return f"maxmemory-policy is {policy}: {lost} before their time", NO_EVICTION


def require_fit(info: Mapping[str, Any], place: str) -> str | None:
    """Raises `ConfigError` for an unfit server; one line of warning for a doubtful one."""
    if fault := unfit(info):
        raise ConfigError(f"Redis at {place} cannot hold jobs: {fault[0]}. Remedy: {fault[1]}")
    if doubt := doubtful(info):
        return f"Redis at {place}: {doubt[0]}. Remedy: {doubt[1]}"
    return None


def read_info(client: redis.Redis) -> Mapping[str, Any]:
    """All of INFO; nothing if the server is away or its ACL withholds it, which others find out and tell better."""
    try:
        info: Mapping[str, Any] = client.info()
    except (redis.RedisError, OSError):
        return {}
    return info

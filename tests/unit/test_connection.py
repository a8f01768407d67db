"""What a Redis that answers may still be wrong about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import redis

from tasks.connection import eviction_warning


def a_client(answer: dict[str, Any] | Exception) -> Any:
    def info(section: str) -> dict[str, Any]:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return SimpleNamespace(info=info, connection_pool=SimpleNamespace(connection_kwargs={"host": "h", "port": 1}))


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_redis_that_may_drop_jobs_is_named(policy: str) -> None:
    warning = eviction_warning(a_client({"maxmemory_policy": policy}))
    assert warning is not None
    assert "h:1" in warning
    assert policy in warning
    assert "noeviction" in warning


@pytest.mark.parametrize(
    "answer", [{"maxmemory_policy": "noeviction"}, {}, redis.exceptions.NoPermissionError("NOPERM"), OSError("away")]
)
def test_a_sound_or_silent_one_is_not(answer: dict[str, Any] | Exception) -> None:
    assert eviction_warning(a_client(answer)) is None

"""What a Redis that answers may still be wrong about, and what a start makes of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import redis

from tasks.errors import ConfigError
from tasks.redis_fitness import read_info, require_fit


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, ("allkeys-lru", "CONFIG SET maxmemory-policy noeviction")),
        ({"maxmemory_policy": "allkeys-random"}, ("allkeys-random", "noeviction")),
        ({"redis_version": "6.0.16"}, ("6.0.16", "Redis 6.2 or newer")),
        ({"redis_version": "7.2.4", "cluster_enabled": 1}, ("cluster mode", "cluster-enabled no")),
    ],
)
def test_a_redis_that_cannot_hold_jobs_stops_the_start(info: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        require_fit(info, "h:1")
    assert all(word in str(refused.value) for word in ("h:1", *words)), str(refused.value)


def test_one_that_may_forget_wishes_is_warned_of() -> None:
    warning = require_fit({"redis_version": "8.0.1", "maxmemory_policy": "volatile-ttl"}, "h:1")
    assert warning is not None
    assert all(word in warning for word in ("h:1", "volatile-ttl", "abort", "noeviction")), warning


@pytest.mark.parametrize("info", [{"redis_version": "6.2.0", "maxmemory_policy": "noeviction"}, {"redis_version": "x"}])
def test_a_sound_one_is_not(info: dict[str, Any]) -> None:
    assert require_fit(info, "h:1") is None


@pytest.mark.parametrize("error", [redis.exceptions.NoPermissionError("NOPERM"), OSError("away")])
def test_one_that_does_not_say_is_given_the_benefit(error: Exception) -> None:
    def info() -> None:
        raise error

    client: Any = SimpleNamespace(info=info)
    assert require_fit(read_info(client), "h:1") is None

"""Facts of a Redis: how it answers, what INFO and CONFIG say, what this user may do. Nothing is written."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from tasks.connection import connect, where
from tasks.doctor.probe.listener import Listener, who_listens
from tasks.errors import StoreUnavailable
from tasks.redis_facts import RedisFacts
from tasks.redis_rights import Sample
from tasks.redis_start import read_facts, refused
from tasks.settings import Settings

_NUM_PINGS = 5


@dataclass(frozen=True, slots=True)
class RedisAnswers:
    facts: RedisFacts
    user: str
    latency_s: float
    #: What the server's clock is ahead of ours, and how far that may be wrong.
    clock_ahead_s: float
    clock_error_s: float
    config: Mapping[str, str]
    #: Samples that this user may not send, with Redis' words.
    refused: Sequence[tuple[Sample, str]]
    #: Of the connection, such as TLSv1.3; None without TLS.
    tls: str | None = None


@dataclass(frozen=True, slots=True)
class NoRedis:
    """Why nothing can be asked. `listener` is who sits there instead, where that is known."""

    place: str
    error: Exception
    listener: Listener | None = None


def ask_redis(
    settings: Settings, samples: Sequence[Sample], limit_s: float, now: Callable[[], float]
) -> RedisAnswers | NoRedis:
    """Raises `ConfigError` for a URL that cannot be read."""
    client = connect(settings, timeout_s=limit_s, num_retries=0)
    with client:
        try:
            return _ask(client, samples, now)
        except StoreUnavailable as error:
            cause = error.__cause__
            return NoRedis(where(client), cause if isinstance(cause, Exception) else error)
        except (redis.RedisError, OSError) as error:
            return NoRedis(where(client), error, _look_closer(client, error, limit_s))


def _ask(client: redis.Redis, samples: Sequence[Sample], now: Callable[[], float]) -> RedisAnswers:
    latency_s = _latency(client)
    ahead_s, error_s = _clock(client, now)
    return RedisAnswers(
        facts=read_facts(client),
        user=_user(client),
        latency_s=latency_s,
        clock_ahead_s=ahead_s,
        clock_error_s=error_s,
        config=_config(client),
        refused=refused(client, samples),
        tls=_tls(client),
    )


def _look_closer(client: redis.Redis, error: Exception, limit_s: float) -> Listener | None:
    options = client.connection_pool.connection_kwargs
    spoke = isinstance(error, redis.ResponseError | redis.AuthenticationError)
    if spoke or "host" not in options:
        return None
    return who_listens(str(options["host"]), int(options.get("port", 6379)), limit_s)


def _user(client: redis.Redis) -> str:
    with contextlib.suppress(redis.ResponseError):
        return str(client.acl_whoami())
    return str(client.connection_pool.connection_kwargs.get("username") or "default")


def _latency(client: redis.Redis) -> float:
    """The best of some round trips: a busy processor here is not a slow network."""
    taken = []
    for _ in range(_NUM_PINGS):
        began = time.perf_counter()
        with contextlib.suppress(redis.exceptions.NoPermissionError):  # the rights say so
            client.ping()
        taken.append(time.perf_counter() - began)
    return min(taken)


def _clock(client: redis.Redis, now: Callable[[], float]) -> tuple[float, float]:
    before = now()
    try:
        seconds, micros = client.time()
    except redis.ResponseError:  # the rights say so
        return 0.0, 0.0
    after = now()
    return seconds + micros / 1e6 - (before + after) / 2, (after - before) / 2


def _config(client: redis.Redis) -> Mapping[str, str]:
    """Withheld by many ACLs and by all managed services."""
    found: dict[str, str] = {}
    for name in ("save", "appendfsync"):
        with contextlib.suppress(redis.ResponseError):
            found |= {str(key): str(value) for key, value in client.config_get(name).items()}
    return found


def _tls(client: redis.Redis) -> str | None:
    connection: Any = client.connection_pool.get_connection()
    try:
        sock = connection._sock  # no public way to it
        return sock.version() if isinstance(sock, ssl.SSLSocket) else None
    finally:
        client.connection_pool.release(connection)

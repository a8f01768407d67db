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
from tasks.doctor.rights import Need, Refusal
from tasks.settings import Settings

_NUM_PINGS = 5


@dataclass(frozen=True, slots=True)
class RedisFacts:
    place: str
    user: str
    latency_s: float
    #: What the server's clock is ahead of ours, and how far that may be wrong.
    clock_ahead_s: float
    clock_error_s: float
    #: None: withheld by the ACL.
    info: Mapping[str, Any] | None
    config: Mapping[str, str]
    refusals: Sequence[Refusal]
    #: Of the connection, such as TLSv1.3; None without TLS.
    tls: str | None = None


@dataclass(frozen=True, slots=True)
class NoRedis:
    """Why nothing can be asked. `listener` is who sits there instead, where that is known."""

    place: str
    error: Exception
    listener: Listener | None = None


def ask_redis(
    settings: Settings, needs: Sequence[Need], limit_s: float, now: Callable[[], float]
) -> RedisFacts | NoRedis:
    """Raises `ConfigError` for a URL that cannot be read."""
    client = connect(settings, timeout_s=limit_s, num_retries=0)
    place = where(client)
    with client:
        try:
            client.ping()
            return _facts(client, place, needs, now)
        except (redis.RedisError, OSError) as error:
            return NoRedis(place, error, _look_closer(client, error, limit_s))


def _facts(client: redis.Redis, place: str, needs: Sequence[Need], now: Callable[[], float]) -> RedisFacts:
    ahead_s, error_s = _clock(client, now)
    return RedisFacts(
        place=place,
        user=_user(client),
        latency_s=_latency(client),
        clock_ahead_s=ahead_s,
        clock_error_s=error_s,
        info=_info(client),
        config=_config(client),
        refusals=_refusals(client, needs),
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


def _info(client: redis.Redis) -> Mapping[str, Any] | None:
    with contextlib.suppress(redis.ResponseError):
        info: Mapping[str, Any] = client.info()
        return info
    return None


def _config(client: redis.Redis) -> Mapping[str, str]:
    """Withheld by many ACLs and by all managed services."""
    found: dict[str, str] = {}
    for name in ("save", "appendfsync"):
        with contextlib.suppress(redis.ResponseError):
            found |= {str(key): str(value) for key, value in client.config_get(name).items()}
    return found


def _refusals(client: redis.Redis, needs: Sequence[Need]) -> Sequence[Refusal]:
    """The commands are queued in a transaction, where the server checks permissions, and which is then discarded."""
    connection: Any = client.connection_pool.get_connection()
    try:
        connection.send_command("MULTI")
        # Outside of a transaction the commands would be carried out.
        if error := _answer(connection):
            return [Refusal(Need(("MULTI",)), error)]
        connection.send_packed_command(connection.pack_commands(need.words for need in needs))
        answers = [_answer(connection) for _ in needs]
    finally:
        connection.disconnect()  # which discards the transaction, whatever the user may do
        client.connection_pool.release(connection)
    return [Refusal(need, error) for need, error in zip(needs, answers, strict=True) if _counts(error)]


def _answer(connection: Any) -> str:
    try:
        connection.read_response()
    except redis.ResponseError as error:
        return str(error) or type(error).__name__
    return ""


def _counts(error: str) -> bool:
    """A command that this version keeps out of transactions, or whose arguments changed, says nothing of rights."""
    return "permission" in error or "unknown command" in error


def _tls(client: redis.Redis) -> str | None:
    connection: Any = client.connection_pool.get_connection()
    try:
        sock = connection._sock  # no public way to it
        return sock.version() if isinstance(sock, ssl.SSLSocket) else None
    finally:
        client.connection_pool.release(connection)

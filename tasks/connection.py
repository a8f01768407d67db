"""Connections to Redis for the store, with options that survive dead peers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from tasks.errors import ConfigError
from tasks.redis_address import TLS_FILES, VARIABLE, RedisAddress, parse_address
from tasks.redis_errors import explain
from tasks.redis_retries import AsyncBoundedRetry, BoundedRetry
from tasks.settings import Settings

__all__ = ["BLOCK_SLICE_S", "async_connect", "connect", "explain", "where"]

#: How long a server may be silent. With one more try, the answer to a command is there, or given up, within twice that.
SOCKET_TIMEOUT_S = 2.5
#: Of what fails at once, as while a server restarts.
NUM_RETRIES = 3
#: One blocking read of a stream: well below the socket's timeout, so that a dead peer still shows.
BLOCK_SLICE_S = SOCKET_TIMEOUT_S / 2
_TLS_CONNECTIONS = (redis.SSLConnection, redis.asyncio.SSLConnection)
_DIALLING: dict[str, Any] = {"socket_timeout": SOCKET_TIMEOUT_S, "socket_connect_timeout": SOCKET_TIMEOUT_S}
#: redis-py's own bound is 100, and then it raises: as many as there are threads, or requests that wait, must go.
_MAX_CONNECTIONS = 20_000
_OPTIONS: dict[str, Any] = {
    **_DIALLING,
    "health_check_interval": 10,
    "decode_responses": True,
    "max_connections": _MAX_CONNECTIONS,
}


def connect(
    settings: Settings,
    *,
    timeout_s: float = SOCKET_TIMEOUT_S,
    num_retries: int = NUM_RETRIES,
    protocol: int | None = None,
) -> redis.Redis:
    """A client that opens its connections at first use. Safe to share between threads. Raises `ConfigError`.

    A command that a silent server never answers fails after twice `timeout_s`, or once that without retries.
    `protocol`: of RESP, 2 or 3; None: redis-py's own choice.
    """
    address = readable(parse_address(settings.redis_url))
    dialling = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    options = _options(address) | dialling | {"retry": BoundedRetry(num_retries, _budget_s(timeout_s))}
    if protocol is not None:
        options["protocol"] = protocol
    if address.kind == "sentinel":
        asked = sentinel_options(address) | dialling
        sentinel: Any = Sentinel(address.hosts, sentinel_kwargs=asked, **options)  # type: ignore[no-untyped-call]
        return sentinel.master_for(address.master)  # type: ignore[no-any-return]
    return redis.Redis(**_target(address), **options)


def async_connect(settings: Settings) -> redis.asyncio.Redis:
    """The same for asyncio; for one event loop."""
    address = readable(parse_address(settings.redis_url))
    options = _options(address) | {"retry": AsyncBoundedRetry(NUM_RETRIES, _budget_s(SOCKET_TIMEOUT_S))}
    if address.kind == "sentinel":
        asked = sentinel_options(address) | {"retry": AsyncRetry(NoBackoff(), 0)}
        sentinel: Any = AsyncSentinel(address.hosts, sentinel_kwargs=asked, **options)  # type: ignore[no-untyped-call]
        return sentinel.master_for(address.master)  # type: ignore[no-any-return]
    return redis.asyncio.Redis(**_target(address), **options)


def _budget_s(timeout_s: float) -> float:
    """More than one timeout and less than two: after a first silence there is one more try, after a second none."""
    return 1.5 * timeout_s


def readable(address: RedisAddress) -> RedisAddress:
    """The address, if its certificates can be read. Raises `ConfigError` that names the parameter and the file."""
    for name in TLS_FILES:
        file = (address.tls or {}).get(name)
        if file is None:
            continue
        try:
            any(Path(str(file)).iterdir()) if name == "ssl_ca_path" else Path(str(file)).open("rb").close()
        except OSError as error:
            raise ConfigError(f"{VARIABLE}: {name}: {file}: {error.strerror}") from None
    return address


def sentinel_options(address: RedisAddress) -> dict[str, Any]:
    """How the sentinels themselves are asked: each once, since there is another to ask."""
    return {**_DIALLING, "retry": Retry(NoBackoff(), 0), **address.sentinel_login, **_tls(address.tls)}


def where(client: Any) -> str:
    """host:port of a client, or its socket, or its primary's name and sentinels; without a password."""
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        return "the cluster"
    if sentinels := getattr(getattr(pool, "sentinel_manager", None), "sentinels", None):
        return f"{pool.service_name} (by sentinels {', '.join(_place(each) for each in sentinels)})"
    return _place(client)


def _place(client: Any) -> str:
    options: Mapping[str, Any] = client.connection_pool.connection_kwargs
    if "path" in options:
        return str(options["path"])
    host, port = str(options.get("host", "localhost")), options.get("port", 6379)
    by = " over TLS" if issubclass(client.connection_pool.connection_class, _TLS_CONNECTIONS) else ""
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}") + by


def _options(address: RedisAddress) -> dict[str, Any]:
    login = {"username": address.username, "password": address.password, "db": address.db}
    keepalive = {} if address.kind == "unix" else {"socket_keepalive": True}
    return {**_OPTIONS, **login, **keepalive, **_tls(address.tls)}


def _target(address: RedisAddress) -> dict[str, Any]:
    if address.kind == "unix":
        return {"unix_socket_path": address.path}
    [(host, port)] = address.hosts
    return {"host": host, "port": port}


def _tls(options: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if options is None else {"ssl": True, **options}

"""Connections to Redis for the store: options that survive dead peers, and errors as one line that helps."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import ExponentialBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from tasks.errors import ConfigError, SafelightError, StoreFull, StoreUnavailable
from tasks.settings import Settings

SOCKET_TIMEOUT_S = 3.0
#: One blocking read of a stream: well below the socket's timeout, so that a dead peer still shows.
BLOCK_SLICE_S = SOCKET_TIMEOUT_S / 2
_OPTIONS: dict[str, Any] = {
    "socket_timeout": SOCKET_TIMEOUT_S,
    "socket_connect_timeout": 3.0,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "decode_responses": True,
}
_TO_SENTINEL = {"socket_timeout": SOCKET_TIMEOUT_S}
_URL = re.compile(r"(?P<scheme>[a-z]+)://(?:(?P<login>.*)@)?(?P<rest>[^@]*)", re.DOTALL)
_BUSY = re.compile(r"\b(LOADING|MISCONF|CLUSTERDOWN|MASTERDOWN|BUSY|NOREPLICAS)\b")
_ENCODED = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*")


def connect(settings: Settings, *, timeout_s: float = SOCKET_TIMEOUT_S, num_retries: int = 2) -> redis.Redis:
    """A client that opens its connections at first use. Safe to share between threads."""
    options = {**_OPTIONS, "retry": Retry(ExponentialBackoff(cap=1.0, base=0.05), num_retries)}
    options |= {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    url = canonical_url(settings.redis_url)
    if url.startswith("sentinel://"):
        hosts, master, login = parse_sentinel(url)
        sentinel: Any = Sentinel(hosts, sentinel_kwargs=_TO_SENTINEL, **options, **login)  # type: ignore[no-untyped-call]
        return sentinel.master_for(master)  # type: ignore[no-any-return]
    return redis.Redis.from_url(url, **options)


def async_connect(settings: Settings) -> redis.asyncio.Redis:
    """The same for asyncio; for one event loop."""
    options = {**_OPTIONS, "retry": AsyncRetry(ExponentialBackoff(cap=1.0, base=0.05), 2)}
    url = canonical_url(settings.redis_url)
    if url.startswith("sentinel://"):
        hosts, master, login = parse_sentinel(url)
        sentinel: Any = AsyncSentinel(hosts, sentinel_kwargs=_TO_SENTINEL, **options, **login)  # type: ignore[no-untyped-call]
        return sentinel.master_for(master)  # type: ignore[no-any-return]
    return redis.asyncio.Redis.from_url(url, **options)


def canonical_url(url: str) -> str:
    """The URL with a login that was pasted raw (`p@ss:/#`) percent-encoded; one that is valid already stays."""
    if url.startswith("sentinel://"):
        return url
    match = _URL.fullmatch(url)
    if match is None or match["login"] is None or _ENCODED.fullmatch(match["login"]):
        return url
    user, _, password = match["login"].partition(":")
    return f"{match['scheme']}://{quote(user, safe='')}:{quote(password, safe='')}@{match['rest']}"


def parse_sentinel(url: str) -> tuple[list[tuple[str, int]], str, dict[str, Any]]:
    """`sentinel://h1:26379;sentinel://h2:26379/0?master_name=m`: sentinels, the master's name, login and database."""
    parts = [urlsplit(part) for part in url.split(";")]
    hosts = [(part.hostname or "localhost", part.port or 26_379) for part in parts]
    master = next((names[0] for part in parts if (names := parse_qs(part.query).get("master_name"))), None)
    if master is None:
        raise ConfigError("SAFELIGHT_REDIS_URL: a sentinel:// URL ends in ?master_name=NAME")
    login: dict[str, Any] = {"db": int(parts[-1].path.strip("/") or 0)}
    if parts[0].password:
        login |= {"username": parts[0].username or None, "password": parts[0].password}
    return hosts, master, login


def where(client: redis.Redis | redis.asyncio.Redis) -> str:
    """host:port of a client, without its password."""
    options = client.connection_pool.connection_kwargs
    if "path" in options:
        return str(options["path"])
    return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"


def explain(error: redis.RedisError | OSError, place: str) -> SafelightError | None:
    """What a failed command means for us, in one line; None: a fault of our own, to be raised as it is."""
    text = " ".join(str(error).split())
    if isinstance(error, redis.exceptions.OutOfMemoryError) or "OOM command not allowed" in text:
        return StoreFull(f"Redis at {place} has reached its maxmemory: wait for results to expire, or raise maxmemory")
    if isinstance(error, redis.AuthenticationError) or "NOAUTH" in text or "WRONGPASS" in text:
        return StoreUnavailable(f"Redis at {place} refused the login: check user and password in SAFELIGHT_REDIS_URL")
    if isinstance(error, redis.ReadOnlyError) or "READONLY" in text:
        return StoreUnavailable(f"Redis at {place} is a read-only replica: point SAFELIGHT_REDIS_URL at the primary")
    if "DENIED" in text:
        return StoreUnavailable(f"Redis at {place} is in protected mode: give it a password, or set protected-mode no")
    if "NOPERM" in text or isinstance(error, redis.exceptions.NoPermissionError):
        return StoreUnavailable(f"Redis at {place} denies this user a command or key ({text}): extend its ACL")
    if isinstance(error, redis.BusyLoadingError | redis.exceptions.MasterDownError) or _BUSY.search(text):
        return StoreUnavailable(f"Redis at {place} cannot serve now ({text}): try again, and look at its log")
    if isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError):
        return StoreUnavailable(
            f"cannot reach Redis at {place} ({text}): is it running? Check SAFELIGHT_REDIS_URL, or run `safelight up`"
        )
    return None

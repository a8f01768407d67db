"""What each sentinel of the URL says of our primary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import redis

from tasks.connection import sentinel_options
from tasks.redis_address import RedisAddress


@dataclass(frozen=True, slots=True)
class SentinelAnswer:
    #: host:port of this sentinel.
    place: str
    #: host:port of the primary; None: it knows none of that name.
    primary: str | None = None
    #: Why there is no answer.
    error: Exception | None = None


def ask_sentinels(address: RedisAddress, limit_s: float) -> Sequence[SentinelAnswer]:
    """One answer a sentinel, in the order of the URL; none for another kind of address."""
    if address.kind != "sentinel":
        return ()
    return [_ask(host, port, address, limit_s) for host, port in address.hosts]


def _ask(host: str, port: int, address: RedisAddress, limit_s: float) -> SentinelAnswer:
    place = f"{host}:{port}"
    options = sentinel_options(address) | {"socket_timeout": limit_s, "socket_connect_timeout": limit_s}
    try:
        with redis.Redis(host, port, decode_responses=True, **options) as sentinel:
            found = sentinel.sentinel_get_master_addr_by_name(address.master)
    except (redis.RedisError, OSError) as error:
        return SentinelAnswer(place, error=error)
    return SentinelAnswer(place, f"{found[0]}:{found[1]}" if found else None)

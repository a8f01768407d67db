"""How kombu reaches our Redis: its spelling of the address, and options that survive dead peers."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tasks.broker_queues import PRIORITY_STEPS
from tasks.connection import sentinel_options
from tasks.redis_address import Host, RedisAddress, parse_address

#: Redelivery is not how lost jobs come back (leases are), so this only has to exceed the longest job.
_VISIBILITY_TIMEOUT_S = 3_600


def broker_url(redis_url: str) -> str:
    """TLS and the sentinels' primary are no part of it: see `broker_tls` and `transport_options`."""
    address = parse_address(redis_url)
    login = _login(address)
    if address.kind == "unix":
        return f"redis+socket://{login}{quote(address.path)}?virtual_host={address.db}"
    scheme = "sentinel" if address.kind == "sentinel" else "redis"
    return ";".join(f"{scheme}://{login}{_netloc(host)}/{address.db}" for host in address.hosts)


def broker_tls(redis_url: str) -> dict[str, Any] | None:
    """kombu's `ssl`, Celery's `broker_use_ssl`; None: no TLS."""
    tls = parse_address(redis_url).tls
    return None if tls is None else dict(tls)


def transport_options(redis_url: str) -> dict[str, Any]:
    """Options of kombu's Redis transport. The socket timeout must exceed the 1 s that its BRPOP waits."""
    options: dict[str, Any] = {
        "visibility_timeout": _VISIBILITY_TIMEOUT_S,
        "unacked_restore_interval": 30,
        "unacked_restore_throttle": 1,
        "socket_timeout": 5,
        "socket_connect_timeout": 3,
        "socket_keepalive": True,
        "health_check_interval": 5,
        "retry_on_timeout": True,
        "priority_steps": list(PRIORITY_STEPS),
        # Within a step: models take turns. "priority" would serve the first queue alone while it has messages.
        "queue_order_strategy": "round_robin",
    }
    address = parse_address(redis_url)
    if address.kind == "sentinel":
        options |= {"master_name": address.master, "sentinel_kwargs": sentinel_options(address)}
    return options


def _login(address: RedisAddress) -> str:
    if address.username is None and address.password is None:
        return ""
    return f"{quote(address.username or '', safe='')}:{quote(address.password or '', safe='')}@"


def _netloc(host: Host) -> str:
    name, port = host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"

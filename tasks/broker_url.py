"""How kombu reaches our Redis: its spelling of the URL, and options that survive dead peers."""

from __future__ import annotations

from typing import Any

from tasks.broker_queues import PRIORITY_STEPS
from tasks.connection import canonical_url, parse_sentinel

#: Redelivery is not how lost jobs come back (leases are), so this only has to exceed the longest job.
_VISIBILITY_TIMEOUT_S = 3_600


def broker_url(redis_url: str) -> str:
    """kombu takes a sentinel master's name as an option, not from the URL; its socket scheme has another name."""
    url = canonical_url(redis_url)
    if url.startswith("unix://"):
        return "redis+socket://" + url.removeprefix("unix://")
    return url.partition("?master_name=")[0] if url.startswith("sentinel://") else url


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
    if redis_url.startswith("sentinel://"):
        options["master_name"] = parse_sentinel(redis_url)[1]
    return options

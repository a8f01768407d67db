"""Facts of the broker: whether Celery's transport connects, whose keys the database holds, who else consumes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from tasks.broker_url import broker_tls, broker_url, transport_options
from tasks.connection import connect
from tasks.settings import Settings

_MAX_KEYS = 5_000
_ASK_S = 1.0
_PIDBOX = "_kombu.binding.celery.pidbox"


@dataclass(frozen=True, slots=True)
class Consumer:
    """A Celery worker of this database. `visibility_s` is None if it did not say."""

    name: str
    queues: Sequence[str]
    visibility_s: float | None = None


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    transport: str
    #: A sample, and whether it is all of them; None: the ACL withholds SCAN.
    keys: Sequence[str] | None
    is_whole: bool = True
    #: Key prefixes of other Safelights.
    other_prefixes: Sequence[str] = ()
    #: None: this user may not ask them.
    consumers: Sequence[Consumer] | None = ()
    num_unacked: int = 0
    oldest_unacked_s: float | None = None
    own_queues: Sequence[str] = field(default=())


def ask_broker(settings: Settings, limit_s: float, now: Callable[[], float]) -> BrokerFacts | Exception:
    """An exception stands for a transport that does not connect."""
    try:
        transport = _connect(settings, limit_s)
    except Exception as error:  # kombu's and redis-py's, which share no root
        return error
    with connect(settings, timeout_s=limit_s, num_retries=0) as client:
        keys, is_whole = _sample(client, limit_s)
        own = settings.submit_queue_names
        num_unacked, oldest_s = _unacked(client, now)
        return BrokerFacts(
            transport=transport,
            keys=keys,
            is_whole=is_whole,
            other_prefixes=_other_prefixes(client, keys or (), settings.key_prefix),
            consumers=_consumers(client, settings, own),
            num_unacked=num_unacked,
            oldest_unacked_s=oldest_s,
            own_queues=own,
        )


def _connect(settings: Settings, limit_s: float) -> str:
    from kombu import Connection

    options = transport_options(settings.redis_url)
    options |= {"socket_timeout": limit_s, "socket_connect_timeout": limit_s, "retry_on_timeout": False}
    tls = broker_tls(settings.redis_url) or False
    with Connection(broker_url(settings.redis_url), ssl=tls, transport_options=options) as connection:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=limit_s)
        connection.default_channel.client.ping()
        return f"visibility timeout {options['visibility_timeout']} s"


def _sample(client: redis.Redis, limit_s: float) -> tuple[Sequence[str] | None, bool]:
    keys: list[str] = []
    give_up_at = time.monotonic() + limit_s
    try:
        for key in client.scan_iter(count=1_000):
            keys.append(str(key))
            if len(keys) >= _MAX_KEYS or time.monotonic() > give_up_at:
                return keys, False
    except redis.ResponseError:
        return None, False
    return keys, True


def _other_prefixes(client: redis.Redis, keys: Sequence[str], own: str) -> Sequence[str]:
    """`{prefix}seq` beside `{prefix}jobs`, a sorted set, is how every Safelight begins."""
    found = []
    for key in keys:
        prefix = key.removesuffix("seq")
        if key.endswith("seq") and prefix != own and _type(client, f"{prefix}jobs") == "zset":
            found.append(prefix)
    return sorted(found)


def _type(client: redis.Redis, key: str) -> str:
    try:
        return str(client.type(key))
    except redis.ResponseError:
        return "unknown"


def _unacked(client: redis.Redis, now: Callable[[], float]) -> tuple[int, float | None]:
    """Messages that a consumer has taken and not acknowledged, and the age of the oldest."""
    try:
        oldest: Any = client.zrange("unacked_index", 0, 0, withscores=True)
        number: Any = client.zcount("unacked_index", "-inf", "+inf")
    except redis.ResponseError:
        return 0, None
    return int(number), now() - float(oldest[0][1]) if oldest else None


def _consumers(client: redis.Redis, settings: Settings, own: Sequence[str]) -> Sequence[Consumer] | None:
    from kombu.exceptions import OperationalError

    try:
        return _inspect(settings, own) if client.exists(_PIDBOX) else ()  # nobody else would answer
    except (redis.exceptions.NoPermissionError, OperationalError) as error:
        if not isinstance(error.__cause__ or error, redis.exceptions.NoPermissionError):
            raise
        return None


def _inspect(settings: Settings, own: Sequence[str]) -> Sequence[Consumer]:
    """Asks every Celery worker of the database which queues it reads and how long its messages stay invisible."""
    from tasks.app import make_app

    with make_app(settings) as app:
        inspect = app.control.inspect(timeout=_ASK_S)
        active: Mapping[str, Any] = inspect.active_queues() or {}
        ours = {name: [queue["name"] for queue in queues] for name, queues in active.items()}
        ours = {name: queues for name, queues in ours.items() if any(is_own(each, own) for each in queues)}
        asked = app.control.inspect(destination=list(ours), timeout=_ASK_S)
        conf: Mapping[str, Any] = (asked.conf(with_defaults=True) or {}) if ours else {}
    return [Consumer(name, queues, _visibility(conf.get(name))) for name, queues in sorted(ours.items())]


def is_own(queue: str, submit_queues: Sequence[str]) -> bool:
    return queue.startswith("safelight.") or queue in submit_queues


def _visibility(conf: Mapping[str, Any] | None) -> float | None:
    """kombu's default is an hour."""
    if conf is None:
        return None
    options: Mapping[str, Any] = conf.get("broker_transport_options") or {}
    return float(options.get("visibility_timeout", 3_600))

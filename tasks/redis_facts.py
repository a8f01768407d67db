"""What a Redis says of itself, and what that means for jobs. Facts in, sentences out; knows no connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

#: Our scripts and Celery's transport use no command or option that is newer.
OLDEST = (6, 2)
_NO_EVICTION = "set maxmemory-policy noeviction, by CONFIG SET and in redis.conf"


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """None: this Redis, or this user's rights, did not tell."""

    place: str
    product: str = "Redis"
    #: The release of Redis whose commands it has; what calls itself Valkey has a release of its own too.
    version: str | None = None
    own_version: str | None = None
    eviction: str | None = None
    maxmemory_bytes: int | None = None
    used_bytes: int | None = None
    machine_bytes: int | None = None
    append_only: bool | None = None
    is_cluster: bool | None = None
    #: host:port of the primary that this one is a replica of.
    replica_of: str | None = None
    #: What could not be written the last time.
    unwritten: Literal["append-only file", "snapshot"] | None = None


@dataclass(frozen=True, slots=True)
class RedisFault:
    """What is wrong, as a predicate of "Redis at PLACE …", and what to change."""

    about: Literal["version", "role", "eviction", "persistence"]
    found: str
    remedy: str


def facts_of(info: Mapping[str, Any], place: str) -> RedisFacts:
    """From the answer to INFO."""
    flags = {name: info.get(name) for name in ("aof_enabled", "cluster_enabled")}
    append_only, is_cluster = (None if flag is None else bool(int(flag)) for flag in flags.values())
    return RedisFacts(
        place,
        product="Valkey" if "valkey_version" in info else "Redis",
        version=_text(info.get("redis_version")),
        own_version=_text(info.get("valkey_version") or info.get("redis_version")),
        eviction=_text(info.get("maxmemory_policy")),
        maxmemory_bytes=_number(info.get("maxmemory")),
        used_bytes=_number(info.get("used_memory")),
        machine_bytes=_number(info.get("total_system_memory")),
        append_only=append_only,
        is_cluster=is_cluster,
        replica_of=f"{info.get('master_host')}:{info.get('master_port')}" if info.get("role") == "slave" else None,
        unwritten=_unwritten(info),
    )


def refused_for(facts: RedisFacts) -> list[RedisFault]:
    """Why jobs would be lost or nothing would work."""
    found = []
    if facts.version and not _is_new_enough(facts.version):
        wanted = ".".join(map(str, OLDEST))
        found.append(RedisFault("version", f"is version {facts.version}", f"{wanted} or newer is needed"))
    if facts.is_cluster:
        what = "is a node of a Redis Cluster, over which Celery cannot send"
        found.append(RedisFault("role", what, "use one primary, or Sentinel (docs/redis.md)"))
    if facts.eviction and facts.eviction.startswith("allkeys-"):
        what = f"has maxmemory-policy {facts.eviction}, which drops queued jobs when its memory is full"
        found.append(RedisFault("eviction", what, _NO_EVICTION))
    return found


def warned_of(facts: RedisFacts) -> list[RedisFault]:
    """What an operator should know, and may accept."""
    found = []
    if facts.version is None:
        what = "does not answer INFO: its version and maxmemory-policy were not checked"
        found.append(RedisFault("version", what, "grant +info (docs/redis.md)"))
    if facts.eviction and facts.eviction.startswith("volatile-"):
        what = (
            f"has maxmemory-policy {facts.eviction}, which drops ended jobs, their unsent webhooks and "
            "idempotency keys early when its memory is full"
        )
        found.append(RedisFault("eviction", what, _NO_EVICTION))
    if facts.append_only is False:
        what = "keeps no append-only file, so a restart loses jobs"
        found.append(RedisFault("persistence", what, "set appendonly yes, by CONFIG SET and in redis.conf"))
    return found


def refusals(facts: RedisFacts) -> list[str]:
    """One line each, naming what to change."""
    return [_line(fault, facts.place) for fault in refused_for(facts)]


def warnings(facts: RedisFacts) -> list[str]:
    return [_line(fault, facts.place) for fault in warned_of(facts)]


def _line(fault: RedisFault, place: str) -> str:
    return f"Redis at {place} {fault.found}: {fault.remedy}"


def _unwritten(info: Mapping[str, Any]) -> Literal["append-only file", "snapshot"] | None:
    if any(info.get(name, "ok") != "ok" for name in ("aof_last_write_status", "aof_last_bgrewrite_status")):
        return "append-only file"
    return "snapshot" if info.get("rdb_last_bgsave_status", "ok") != "ok" else None


def _is_new_enough(version: str) -> bool:
    """An unreadable version is given the benefit of the doubt."""
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    return len(numbers) < 2 or tuple(numbers) >= OLDEST


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any) -> int | None:
    return int(value) if str(value).isdigit() else None

"""What a Redis says of itself, and what that means for jobs. Facts in, sentences out; knows no connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Our scripts and Celery's transport use no command or option that is newer.
OLDEST = (6, 2)


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """None: this Redis, or this user's rights, did not tell."""

    place: str
    product: str = "Redis"
    version: str | None = None
    eviction: str | None = None
    maxmemory_bytes: int | None = None
    used_bytes: int | None = None
    append_only: bool | None = None
    is_cluster: bool | None = None


def facts_of(info: Mapping[str, Any], place: str) -> RedisFacts:
    """From the answer to INFO. What calls itself Valkey also names the release of Redis whose commands it has."""
    flags = {name: info.get(name) for name in ("aof_enabled", "cluster_enabled")}
    append_only, is_cluster = (None if flag is None else bool(int(flag)) for flag in flags.values())
    return RedisFacts(
        place,
        product="Valkey" if "valkey_version" in info else "Redis",
        version=_text(info.get("redis_version")),
        eviction=_text(info.get("maxmemory_policy")),
        maxmemory_bytes=_number(info.get("maxmemory")),
        used_bytes=_number(info.get("used_memory")),
        append_only=append_only,
        is_cluster=is_cluster,
    )


def refusals(facts: RedisFacts) -> list[str]:
    """Why jobs would be lost or nothing would work: one line each, naming what to change."""
    here = f"Redis at {facts.place}"
    found = []
    if facts.version and not _is_new_enough(facts.version):
        wanted = ".".join(map(str, OLDEST))
        found.append(f"{here} is version {facts.version}: {wanted} or newer is needed")
    if facts.is_cluster:
        found.append(
            f"{here} is a node of a Redis Cluster, over which Celery cannot send: use one primary, or Sentinel "
            "(docs/redis.md)"
        )
    if facts.eviction and facts.eviction.startswith("allkeys-"):
        found.append(
            f"{here} has maxmemory-policy {facts.eviction}, which drops queued jobs when its memory is full: "
            "set maxmemory-policy noeviction"
        )
    return found


def warnings(facts: RedisFacts) -> list[str]:
    """What an operator should know, and may accept."""
    here = f"Redis at {facts.place}"
    if facts.version is None:
        return [f"{here} does not answer INFO: its version and maxmemory-policy were not checked (docs/redis.md)"]
    found = []
    if facts.eviction and facts.eviction.startswith("volatile-"):
        found.append(
            f"{here} has maxmemory-policy {facts.eviction}, which drops ended jobs, their unsent webhooks and "
            "idempotency keys early when its memory is full: set maxmemory-policy noeviction"
        )
    if facts.append_only is False:
        found.append(f"{here} keeps no append-only file, so a restart loses jobs: set appendonly yes")
    return found


def _is_new_enough(version: str) -> bool:
    """An unreadable version is given the benefit of the doubt."""
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    return len(numbers) < 2 or tuple(numbers) >= OLDEST


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any) -> int | None:
    return int(value) if str(value).isdigit() else None

"""What a Redis that answers may still be wrong about."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.redis_facts import RedisFacts, facts_of, refusals, warnings

SOUND: dict[str, Any] = {
    "redis_version": "7.2.4",
    "maxmemory_policy": "noeviction",
    "maxmemory": 0,
    "used_memory": 1000,
    "aof_enabled": 1,
    "cluster_enabled": 0,
}


def facts(**changes: Any) -> RedisFacts:
    return facts_of(SOUND | changes, "h:1")


def test_a_sound_one_is_neither_refused_nor_warned_of() -> None:
    sound = facts(valkey_version="9.1.2")
    assert (sound.product, sound.version, sound.used_bytes) == ("Valkey", "7.2.4", 1000)
    assert refusals(sound) == warnings(sound) == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
def test_one_that_drops_queued_jobs_is_refused(policy: str) -> None:
    [refusal] = refusals(facts(maxmemory_policy=policy))
    assert policy in refusal and "h:1" in refusal and "set maxmemory-policy noeviction" in refusal


@pytest.mark.parametrize("policy", ["volatile-lru", "volatile-ttl"])
def test_one_that_drops_ended_jobs_early_is_warned_of(policy: str) -> None:
    lossy = facts(maxmemory_policy=policy)
    assert refusals(lossy) == []
    [warning] = warnings(lossy)
    assert policy in warning and "noeviction" in warning


@pytest.mark.parametrize(
    ("version", "is_refused"),
    [("5.0.14", True), ("6.0.9", True), ("6.2.0", False), ("6.2.14", False), ("10.0", False), ("unstable", False)],
)
def test_one_that_is_too_old_is_refused(version: str, is_refused: bool) -> None:
    found = refusals(facts(redis_version=version))
    assert bool(found) is is_refused
    if found:
        assert version in found[0] and "6.2" in found[0]


def test_a_node_of_a_cluster_is_refused() -> None:
    [refusal] = refusals(facts(cluster_enabled=1))
    assert "Cluster" in refusal and "docs/redis.md" in refusal


def test_no_append_only_file_is_warned_of() -> None:
    [warning] = warnings(facts(aof_enabled=0))
    assert "appendonly yes" in warning


def test_silence_is_said_and_guessed_about_no_further() -> None:
    silent = facts_of({}, "h:1")
    assert refusals(silent) == []
    [warning] = warnings(silent)
    assert "INFO" in warning

"""Every Redis command that Safelight and Celery's transport give, on which keys; and the ACL rule for those that lack.

The record's are those of `store.lua`, `webhook_queue.py` and the store; a test compares them. The broker's were read
off a worker of kombu 5.7 with MONITOR, and from its source.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.broker_queues import queue_lists
from tasks.settings import Settings

_RECORD = """
HSET {key} f v|HSETNX {key} f v|HGET {key} f|HMGET {key} f|HGETALL {key}|HDEL {key} f|HINCRBY {key} f 1|HKEYS {key}
EXISTS {key}|DEL {key}|PEXPIRE {key} 1|SET {key} v|GET {key}|INCR {key}|XADD {key} * f v|XDEL {key} 0-1
XREAD STREAMS {key} 0|ZADD {key} 1 m|ZREM {key} m|ZCARD {key}|ZCOUNT {key} 0 1|ZRANK {key} m|ZSCORE {key} m
ZRANGE {key} 0 1|ZRANGEBYSCORE {key} 0 1|ZREVRANGE {key} 0 1|ZREVRANGEBYSCORE {key} 1 0|ZREMRANGEBYSCORE {key} 0 1
ZREMRANGEBYRANK {key} 0 1|EVALSHA {sha} 1 {key}
"""
_QUEUE = "LPUSH {key} v|RPUSH {key} v|BRPOP {key} 1|LLEN {key}|DEL {key}|EXISTS {key}"
_UNACKED = "HSET {key} f v|HGET {key} f|HDEL {key} f"
_UNACKED_INDEX = "ZADD {key} 1 m|ZREM {key} m|ZRANGE {key} 0 1"
_MUTEX = "SET {key} v|GET {key}|DEL {key}|EVALSHA {sha} 1 {key}"
_BINDING = "SADD {key} m|SREM {key} m|SMEMBERS {key}|EXISTS {key}|DEL {key}|ZADD {key} 1 m|ZREM {key} m"
_BINDING += "|ZRANGEBYSCORE {key} 0 1|EVALSHA {sha} 1 {key}"
_PIDBOX = "LPUSH {key} v|BRPOP {key} 1|LLEN {key}|DEL {key}|PEXPIRE {key} 1"
_CHANNEL = "PUBLISH {key} m|PSUBSCRIBE {key}|PUNSUBSCRIBE {key}"
_PLAIN = "PING|TIME|SCRIPT LOAD x|SCRIPT EXISTS {sha}|CLIENT SETINFO LIB-NAME x"
_SHA = "0" * 40


@dataclass(frozen=True, slots=True)
class Need:
    """One command with arguments, and the ACL pattern that covers its key or channel (empty: it has none)."""

    words: tuple[str, ...]
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    need: Need
    error: str


def needs(settings: Settings) -> tuple[Need, ...]:
    """Commands to ask permission for; nothing of this is meant to be executed."""
    prefix, submit = settings.key_prefix, [name.strip() for name in settings.submit_queues.split(",") if name.strip()]
    foreign = [name for name in submit if not name.startswith("safelight.")]
    found = _of(_PLAIN, "", "") + _of(_RECORD, f"{prefix}doctor", f"~{prefix}*")
    for queue in queue_lists("doctor")[:2]:
        found += _of(_QUEUE, queue, "~safelight.*")
    for queue in foreign:
        found += _of(_QUEUE, queue, f"~{queue}*")
    found += _of(_UNACKED, "unacked", "~unacked*") + _of(_UNACKED_INDEX, "unacked_index", "~unacked*")
    found += _of(_MUTEX, "unacked_mutex", "~unacked*") + _of(_BINDING, "_kombu.binding.doctor", "~_kombu.*")
    found += _of(_PIDBOX, "doctor.reply.celery.pidbox", "~*.celery.pidbox*")
    channel = f"/{database(settings.redis_url)}.celery.pidbox"
    return found + _of(_CHANNEL, channel, f"&{channel}")


def database(redis_url: str) -> int:
    found = re.search(r"(?:/|[?&](?:db|virtual_host)=)(\d+)(?:\?[^/]*)?$", redis_url)
    return int(found[1]) if found else 0


def rule(settings: Settings, user: str = "safelight") -> str:
    """The whole ACL rule, without a password."""
    wanted = [Refusal(each, "no permissions to run") for each in needs(settings)]
    patterns = list(dict.fromkeys(each.pattern for each in needs(settings) if each.pattern))
    commands = [word for word in _grants(wanted) if word.startswith("+")]
    return " ".join(["ACL SETUSER", user, *patterns, "+@connection", "+@transaction", "+info", *commands])


def grant(refusals: Sequence[Refusal], user: str) -> str:
    """The ACL rule that lifts these refusals."""
    return " ".join(["ACL SETUSER", user, *_grants(refusals)])


def _grants(refusals: Sequence[Refusal]) -> list[str]:
    words = []
    for refusal in refusals:
        by_key = "to access" in refusal.error
        words.append(refusal.need.pattern if by_key else f"+{command(refusal.need)}")
    return sorted(dict.fromkeys(words), key=lambda word: "+~&".index(word[0]))


def command(need: Need) -> str:
    """As ACL spells it: `script|load`."""
    words = need.words[:2] if need.words[0] in ("SCRIPT", "CLIENT") else need.words[:1]
    return "|".join(words).lower()


def _of(text: str, key: str, pattern: str) -> tuple[Need, ...]:
    lines = [line for line in re.split(r"[|\n]", text) if line]
    # Filled in word by word: a key may hold spaces.
    return tuple(
        Need(tuple(word.replace("{key}", key).replace("{sha}", _SHA) for word in line.split()), pattern)
        for line in lines
    )

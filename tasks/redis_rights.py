"""What a user of Redis must be allowed: the commands and keys of our scripts and of Celery's transport. Pure.

`acl_line` is the ACL that grants this, `docs/redis.md` prints it, and a test holds the two together.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks.broker_queues import queue_for, queue_lists

#: What our scripts (`tasks/*.lua`) and `video_index.py` run on keys with our prefix, as samples without effect.
_STORE = """
del {}, evalsha x 1 {}, exists {}, get {}, hdel {} f, hget {} f, hgetall {}, hincrby {} f 1, hkeys {}, hmget {} f,
hset {} f v, hsetnx {} f v, incr {}, lrange {} 0 1, ltrim {} 0 1, pexpire {} 1, rpush {} x, set {} v,
xadd {} * f v, xdel {} 1-1, xread streams {} 0,
zadd {} 1 m, zcard {}, zcount {} 0 1, zrange {} 0 1, zrangebyscore {} 0 1, zrank {} m, zrem {} m,
zremrangebyrank {} 0 1, zremrangebyscore {} 0 1, zrevrange {} 0 1, zrevrangebyscore {} 1 0, zscore {} m
"""
_SERVER = "ping, script|load x, script|exists x, time, watch {}"
#: Of kombu: to send and to count messages; to take them, and to drop a queue of its own.
_SEND = "llen {}, lpush {} x"
_TAKE = "llen {}, lpush {} x, brpop {} 1, del {}, exists {}, rpush {} x"
_BINDINGS = "sadd {} m, smembers {}, srem {} m, del {}, exists {}"
#: Of kombu: messages that nobody has acknowledged yet, and bindings that run out.
_HELD = "hdel {} f, hget {} f, hset {} f v, exists {}, watch {}"
_ORDERED = "zadd {} 1 m, zrange {} 0 1, zrangebyscore {} 0 1, zrem {} m"
_LOCK = "set {} v, get {}, evalsha x 1 {}"
#: What a connection needs before it sends anything of ours, and what is only looked at.
_CONNECTING = ("@transaction", "hello", "ping", "select", "info")
#: Lets a worker hear of aborts (`tasks/abort_feed.py`); without it they are looked for by asking.
_FEED = ("client|id", "client|tracking", "subscribe")
_KEYS_OF_CELERY = ("unacked*", "_kombu.binding*", "*.celery.pidbox*")


@dataclass(frozen=True, slots=True)
class Sample:
    """A command as it would be sent, for a dry run. `key`: the key or channel it names, if any."""

    words: tuple[str, ...]
    key: str = ""

    @property
    def command(self) -> str:
        """As an ACL spells it: `xadd`, `script|load`."""
        return "|".join(self.words[:2]) if self.words[0] == "script" else self.words[0]


def producer_samples(prefix: str, models: Iterable[str]) -> list[Sample]:
    """All kinds of commands that a producer (client, API) sends."""
    found = _samples(_STORE, f"{prefix}jobs") + _samples(_SERVER, f"{prefix}jobs")
    for model in models:
        for queue in queue_lists(model):
            found += _samples(_SEND, queue)
    return found


def worker_samples(prefix: str, models: Iterable[str], submit_queues: Iterable[str], db: int) -> list[Sample]:
    """The same for a worker: it also takes messages, and listens to `celery control`."""
    names = list(models)
    found = producer_samples(prefix, names)
    found += _samples(_HELD, "unacked") + _samples(_ORDERED, "unacked_index") + _samples(_LOCK, "unacked_mutex")
    found += _samples(_ORDERED, "_kombu.binding_deadlines")
    queues = [*map(queue_for, names), *submit_queues]
    for queue in [*queues, "safelight@host.celery.pidbox", "0.reply.celery.pidbox"]:
        found += _samples(_TAKE, queue)
    for exchange in [*queues, "celery.pidbox", "reply.celery.pidbox"]:
        for kind in ("binding", "binding_permanent"):
            found += _samples(_BINDINGS, f"_kombu.{kind}.{exchange}")
    return found + _samples("publish {} x, psubscribe {}, punsubscribe {}", f"/{db}.celery.pidbox")


def missing_rights(refused: Sequence[tuple[Sample, str]]) -> list[str]:
    """From samples that were refused, with Redis' words, to what an ACL lacks: `+xadd`, `~safelight:jobs`, `&/0.x`."""
    rights = []
    for sample, words in refused:
        if is_unknown_command(words):
            continue
        if "channel" in words:
            rights.append(f"&{sample.key}")
        elif "key" in words and "command" not in words:
            rights.append(f"~{sample.key.partition(chr(6))[0]}")
        else:
            rights.append(f"+{sample.command}")
    return list(dict.fromkeys(rights))


def unknown_commands(refused: Sequence[tuple[Sample, str]]) -> list[str]:
    """Those of the samples that the server does not have, whoever asks."""
    return list(dict.fromkeys(sample.command for sample, words in refused if is_unknown_command(words)))


def key_patterns(prefix: str, submit_queues: Iterable[str] = ()) -> list[str]:
    """Keys of an installation, as an ACL covers them."""
    own = [f"{queue}*" for queue in submit_queues if not queue.startswith("safelight.")]
    return [f"{prefix}*", "safelight.*", *own, *_KEYS_OF_CELERY]


def acl_line(
    user: str = "safelight", prefix: str = "safelight:", submit_queues: Sequence[str] = (), db: int = 0
) -> str:
    """All that worker, API and clients need, and nothing else. Sets rights; the user's passwords stay."""
    sent = dict.fromkeys(sample.command for sample in worker_samples(prefix, ["x"], submit_queues, db))
    commands = [*_CONNECTING, *sorted((sent.keys() | {*_FEED}) - {*_CONNECTING, "watch"})]  # watch: of @transaction
    keys = " ".join(f"~{pattern}" for pattern in key_patterns(prefix, submit_queues))
    granted = " ".join(f"+{command}" for command in commands)
    # Without the last two, which no start asks for, events get lost and aborts are looked for by asking.
    channels = f"&/{db}.celery.pidbox &/{db}.celeryev/* &__redis__:invalidate"
    return f"ACL SETUSER {user} resetkeys {keys} resetchannels {channels} -@all {granted}"


def granting(missing: Sequence[str], prefix: str, submit_queues: Iterable[str] = ()) -> list[str]:
    """The words of `acl_line` that give what `missing_rights` names."""
    patterns = key_patterns(prefix, submit_queues)
    words = []
    for right in missing:
        covers = (f"~{each}" for each in patterns if right[0] == "~" and fnmatch.fnmatchcase(right[1:], each))
        words.append("+@transaction" if right == "+multi" else next(covers, right))
    return list(dict.fromkeys(words))


def is_unknown_command(words: str) -> bool:
    return "unknown command" in words.lower()


def _samples(lines: str, key: str) -> list[Sample]:
    found = []
    for line in lines.replace("\n", " ").split(","):
        first, *others = line.split()
        words = (*first.split("|"), *(word.format(key) for word in others))
        found.append(Sample(words, key if "{}" in others else ""))
    return found

"""Looks at Redis once, before a program takes jobs: version, eviction, and the user's rights, by a dry run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import redis

from tasks.connection import where
from tasks.errors import ConfigError
from tasks.redis_errors import explain
from tasks.redis_facts import RedisFacts, facts_of, refusals, warnings
from tasks.redis_rights import Sample, is_unknown_command, missing_rights, unknown_commands

T = TypeVar("T")
_MAX_NAMED = 8
_BEGIN = Sample(("multi",))


def check_start(client: redis.Redis, samples: Sequence[Sample]) -> list[str]:
    """What to warn of. Raises `ConfigError` for a Redis that cannot be used as it is, `StoreUnavailable` for none."""
    facts = read_facts(client)
    if found := refusals(facts):  # first: an old server lacks commands as well
        raise ConfigError("; ".join(found))
    denied = refused(client, samples)
    if unknown := unknown_commands(denied):
        raise ConfigError(f"Redis at {where(client)} does not know {_some(unknown)}: take back rename-command")
    if missing := missing_rights(denied):
        raise ConfigError(
            f"Redis at {where(client)} denies its user {_some(missing)}: extend the ACL as in docs/redis.md"
        )
    return warnings(facts)


def read_facts(client: redis.Redis) -> RedisFacts:
    """Raises `StoreUnavailable`; a user who may not ask learns nothing."""
    try:
        info: Any = _reached(client, client.info)
    except redis.exceptions.NoPermissionError:
        info = {}
    return facts_of(info, where(client))


def refused(client: redis.Redis, samples: Sequence[Sample]) -> list[tuple[Sample, str]]:
    """Samples that this user may not send, or that the server does not have, with Redis' words.

    A transaction takes them in and is never executed. Raises `StoreUnavailable`.
    """

    def ask() -> list[tuple[Sample, str]]:
        connection = client.connection_pool.get_connection()
        try:
            if words := _denials(connection, [_BEGIN])[0]:  # what follows would be executed
                return [(_BEGIN, words)]
            answers = _denials(connection, samples)
        finally:
            connection.disconnect()  # type: ignore[no-untyped-call]  # forgets the transaction
            client.connection_pool.release(connection)
        return [(sample, words) for sample, words in zip(samples, answers, strict=True) if words]

    return _reached(client, ask)


def _denials(connection: Any, samples: Sequence[Sample]) -> list[str]:
    commands = connection.pack_commands([sample.words for sample in samples])
    connection.send_packed_command(commands, check_health=False)  # which might connect anew, out of the transaction
    return [_denial(connection, must_do=sample is _BEGIN) for sample in samples]


def _denial(connection: Any, *, must_do: bool) -> str:
    """Empty for a command that this user may send, whatever else may be wrong with it if it need not be done."""
    try:
        connection.read_response()
    except redis.exceptions.NoPermissionError as error:
        return str(error)
    except redis.ResponseError as error:
        if is_unknown_command(str(error)):
            return str(error)
        if must_do:
            raise
    return ""


def _some(words: Sequence[str]) -> str:
    more = f" and {len(words) - _MAX_NAMED} more" if len(words) > _MAX_NAMED else ""
    return ", ".join(words[:_MAX_NAMED]) + more


def _reached(client: redis.Redis, command: Callable[[], T]) -> T:
    try:
        return command()
    except redis.exceptions.NoPermissionError:
        raise
    except (redis.RedisError, OSError) as error:
        known = explain(error, where(client))
        if known is None:
            raise
        raise known from error

"""A command is tried so often and no oftener, whatever redis-py would retry within it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import redis

from tasks.redis_retries import AsyncBoundedRetry, BoundedRetry

Nested = Callable[[int, float], tuple[int, int]]


def nested(num_retries: int, budget_s: float) -> tuple[int, int]:
    """How often a command is tried that needs a connection that is tried itself, and how often that is."""
    retry, tries = BoundedRetry(num_retries, budget_s), {"command": 0, "connection": 0}

    def connect() -> None:
        tries["connection"] += 1
        raise redis.TimeoutError("nothing heard")

    def command() -> None:
        tries["command"] += 1
        retry.call_with_retry(connect, lambda error: None)

    with pytest.raises(redis.TimeoutError):
        retry.call_with_retry(command, lambda error, failures: None, with_failure_count=True)
    return tries["command"], tries["connection"]


def nested_async(num_retries: int, budget_s: float) -> tuple[int, int]:
    retry, tries = AsyncBoundedRetry(num_retries, budget_s), {"command": 0, "connection": 0}

    async def forget(*_: object) -> None: ...

    async def connect() -> None:
        tries["connection"] += 1
        raise redis.TimeoutError("nothing heard")

    async def command() -> None:
        tries["command"] += 1
        await retry.call_with_retry(connect, forget)

    async def call() -> None:
        with pytest.raises(redis.TimeoutError):
            await retry.call_with_retry(command, forget, with_failure_count=True)

    asyncio.run(call())
    return tries["command"], tries["connection"]


@pytest.mark.parametrize("tried", [nested, nested_async])
def test_what_is_nested_is_tried_once_for_each_try_of_the_command(tried: Nested) -> None:
    assert tried(1, 60) == (2, 2)


@pytest.mark.parametrize("tried", [nested, nested_async])
def test_no_try_begins_after_the_budget(tried: Nested) -> None:
    assert tried(5, 0) == (1, 1)


def test_one_command_leaves_nothing_to_the_next() -> None:
    retry = BoundedRetry(1, 60)
    failures: list[Exception] = []
    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            retry.call_with_retry(_refuse, failures.append)
    assert len(failures) == 4
    assert retry.call_with_retry(lambda: "answer", failures.append) == "answer"


def _refuse() -> None:
    raise redis.ConnectionError("refused")

"""How often a command to Redis is tried again: a bound for the command as a whole, whatever its parts would retry."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.retry import Retry

T = TypeVar("T")
Fail = Callable[..., Any]


class _Span:
    """Of one connection, which serves one command at a time: whether it is within a command, and when that is to end.

    redis-py retries the command, the connection that it needs and that connection's ping, each so many times, one
    within the other: three tries of three seconds become nine.
    """

    def __init__(self, budget_s: float) -> None:
        self._budget_s = budget_s
        self._ends_at: float | None = None

    @property
    def is_open(self) -> bool:
        return self._ends_at is not None

    def begin(self) -> None:
        self._ends_at = time.monotonic() + self._budget_s

    def end(self) -> None:
        self._ends_at = None

    def is_over(self) -> bool:
        return self._ends_at is not None and time.monotonic() >= self._ends_at


class BoundedRetry(Retry):
    """Tries again while `budget_s` from the first try are not over, at most `num_retries` times; nested calls never.

    So a server that refuses is asked several times, and one that says nothing twice if the budget exceeds one timeout.
    """

    def __init__(self, num_retries: int, budget_s: float) -> None:
        super().__init__(ExponentialBackoff(cap=1.0, base=0.05), num_retries)
        self._span = _Span(budget_s)
        self._once = Retry(NoBackoff(), 0)

    def call_with_retry(self, do: Callable[[], T], fail: Fail, *judge: Any, **options: Any) -> T:
        if self._span.is_open:
            return self._once.call_with_retry(do, fail, *judge, **options)

        def failed(error: Exception, *num_failures: int) -> None:
            fail(error, *num_failures)
            if self._span.is_over():
                raise error

        self._span.begin()
        try:
            return super().call_with_retry(do, failed, *judge, **options)
        finally:
            self._span.end()


class AsyncBoundedRetry(AsyncRetry):
    """The same for asyncio."""

    def __init__(self, num_retries: int, budget_s: float) -> None:
        super().__init__(ExponentialBackoff(cap=1.0, base=0.05), num_retries)
        self._span = _Span(budget_s)
        self._once = AsyncRetry(NoBackoff(), 0)

    async def call_with_retry(self, do: Callable[[], Awaitable[T]], fail: Fail, *judge: Any, **options: Any) -> T:
        if self._span.is_open:
            return await self._once.call_with_retry(do, fail, *judge, **options)

        async def failed(error: Exception, *num_failures: int) -> None:
            await fail(error, *num_failures)
            if self._span.is_over():
                raise error

        self._span.begin()
        try:
            return await super().call_with_retry(do, failed, *judge, **options)
        finally:
            self._span.end()

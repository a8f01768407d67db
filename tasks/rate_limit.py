"""How many jobs one key may send in a while: a token bucket in Redis, so that all API processes share it.

rate:{name}  hash  `level`, the jobs that the key may send at once, as it was at `at` (ms); expires when full again
"""

from __future__ import annotations

from dataclasses import dataclass

import redis
import redis.asyncio

from tasks.connection import explain, where
from tasks.errors import RateLimited

_PERIODS_S = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}

# KEYS: the bucket.  ARGV: its size, the ms in which it fills up, the jobs to send.  Gives 0, or ms to wait.
# More jobs than its size are let through when it is full, and leave a debt.
_SCRIPT = """
local size, fill_ms, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local saved = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = size
if saved[1] then
  level = math.min(size, tonumber(saved[1]) + math.max(0, now - tonumber(saved[2])) * size / fill_ms)
end
local needed = math.min(cost, size)
if level < needed then return math.max(1, math.ceil((needed - level) * fill_ms / size)) end
level = level - cost
redis.call('HSET', KEYS[1], 'level', string.format('%.6f', level), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil((size - level) * fill_ms / size) + 1000)
return 0
"""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many jobs a period, and as many at once."""

    num_jobs: int
    period: str

    @classmethod
    def parse(cls, text: str) -> Rate:
        """`60/minute`. The setting was checked when it was read."""
        num_jobs, _, period = text.partition("/")
        return cls(int(num_jobs), period)

    @property
    def period_ms(self) -> int:
        return _PERIODS_S[self.period] * 1000

    def __str__(self) -> str:
        return f"{self.num_jobs}/{self.period}"


class RateLimiter:
    """Buckets by name. One round trip a call; for one event loop."""

    def __init__(self, client: redis.asyncio.Redis, key_prefix: str, rate: Rate) -> None:
        self._client = client
        self._prefix = key_prefix
        self._rate = rate
        self._script = client.register_script(_SCRIPT)

    async def spend(self, name: str, num_jobs: int = 1) -> None:
        """Takes the jobs out of the bucket of `name`. Raises `RateLimited`, and `StoreUnavailable`."""
        key, rate = f"{self._prefix}rate:{name}", self._rate
        try:
            wait_ms = await self._script([key], [rate.num_jobs, rate.period_ms, num_jobs])
        except (redis.RedisError, OSError) as error:
            known = explain(error, where(self._client))
            if known is None:
                raise
            raise known from error
        if wait_ms:
            raise RateLimited(str(rate), int(wait_ms) / 1000)

    async def close(self) -> None:
        await self._client.aclose()

"""Which jobs' ends are still to be told to their webhooks, and when next. Durable in Redis; knows no HTTP.

webhooks        zset  job ids by the time (ms) at which their delivery is due. `store.lua` adds a job when it ends;
                      a leased delivery is due again when its lease ends, so that a lost sender is replaced
webhook_tries   hash  job id -> failed deliveries so far
webhooks_dead   zset  job ids whose deliveries are given up, by time; the newest 10 000
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis

from tasks.connection import explain, where

#: Seconds between deliveries, as Standard Webhooks recommends: ten tries in a little more than three days.
BACKOFF_S = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)

# KEYS: webhooks, webhook_tries, webhooks_dead.  ARGV: verb, job id, the verb's own.
_SCRIPT = """
local queue, tries, dead = KEYS[1], KEYS[2], KEYS[3]
local verb, id = ARGV[1], ARGV[2]
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function bury()
  call('ZREM', queue, id)
  call('HDEL', tries, id)
  call('ZADD', dead, now, id)
  call('ZREMRANGEBYRANK', dead, 0, -10001)
  return 'dead'
end

if verb == 'enqueue' then
  call('ZREM', dead, id)
  return call('ZADD', queue, 'NX', now, id)
elseif verb == 'lease' then
  local found = call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, ARGV[3])
  local ends = now + tonumber(ARGV[4])
  for _, each in ipairs(found) do call('ZADD', queue, ends, each) end
  return {string.format('%.0f', ends), found}
end

-- From here on only for the holder of the lease.
if tonumber(call('ZSCORE', queue, id) or -1) ~= tonumber(ARGV[3]) then return 'lost' end
if verb == 'done' then
  call('ZREM', queue, id)
  call('HDEL', tries, id)
  return 'done'
elseif verb == 'bury' then
  return bury()
end
local pause = ARGV[3 + call('HINCRBY', tries, id, 1)]
if not pause then return bury() end
call('ZADD', queue, now + tonumber(pause), id)
return 'again'
"""


@dataclass(frozen=True, slots=True)
class Delivery:
    job_id: str
    #: Names the lease: once it has run out, this delivery changes nothing any more.
    lease: str


class WebhookQueue:
    """Every call is atomic, and raises `StoreUnavailable`. Safe to share between threads."""

    def __init__(
        self, client: redis.Redis, key_prefix: str = "safelight:", backoff_s: Sequence[float] = BACKOFF_S
    ) -> None:
        self._client = client
        self._keys = [f"{key_prefix}{name}" for name in ("webhooks", "webhook_tries", "webhooks_dead")]
        self._backoff_ms = [int(pause * 1000) for pause in backoff_s]
        self._script = client.register_script(_SCRIPT)

    def enqueue(self, job_id: str) -> None:
        """Deliver now; also brings a dead delivery back. The store does the same by itself when a job ends."""
        self._run("enqueue", job_id)

    def due(self, limit: int = 1, lease_s: float = 60.0) -> Sequence[Delivery]:
        """Take deliveries that are due, the longest overdue first; they are due again after `lease_s`."""
        lease, job_ids = self._run("lease", "", limit, int(lease_s * 1000))
        return [Delivery(job_id, lease) for job_id in job_ids]

    def done(self, delivery: Delivery) -> None:
        self._run("done", delivery.job_id, delivery.lease)

    def retry(self, delivery: Delivery) -> bool:
        """Due again after the next pause; False if that was the last try, and the delivery is dead."""
        return bool(self._run("retry", delivery.job_id, delivery.lease, *self._backoff_ms) != "dead")

    def bury(self, delivery: Delivery) -> None:
        """Give up at once."""
        self._run("bury", delivery.job_id, delivery.lease)

    def dead(self, limit: int = 100) -> Sequence[str]:
        """Ids of jobs whose deliveries were given up, newest first."""
        return self._guarded(lambda: self._client.zrevrange(self._keys[2], 0, limit - 1))  # type: ignore[no-any-return]

    def _run(self, *args: str | int) -> Any:
        return self._guarded(lambda: self._script(self._keys, args))

    def _guarded(self, command: Any) -> Any:
        try:
            return command()
        except (redis.RedisError, OSError) as error:
            known = explain(error, where(self._client))
            if known is None:
                raise
            raise known from error

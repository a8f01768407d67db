"""Which jobs' ends are still to be told to their webhooks, and when next. Durable in Redis; knows no HTTP.

webhooks         zset  job ids by the time (ms) at which their delivery is due. `store.lua` adds a job when it ends;
                       a leased delivery is due again when its lease ends, so that a lost sender is replaced
webhook_tries    hash  job id -> failed deliveries so far
webhooks_dead    zset  job ids whose deliveries are given up, by time; the newest 10 000, and no longer than `keep_s`.
                       `store.lua` removes those whose record has expired
webhook_letters  hash  job id -> JSON of {receiver, status, error, tries}, of the same ids
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

import redis
import redis.asyncio
from pydantic import BaseModel, ConfigDict

from tasks.connection import explain, where
from tasks.job import Timestamp
from tasks.job_codec import moment

#: Seconds between deliveries, as Standard Webhooks recommends: ten tries in a little more than three days.
BACKOFF_S = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
KEEP_S = 30 * 86_400.0
_SCRIPT = files("tasks").joinpath("webhooks.lua").read_text("utf-8")
_KEYS = ("webhooks", "webhook_tries", "webhooks_dead", "webhook_letters")


@dataclass(frozen=True, slots=True)
class Delivery:
    job_id: str
    #: Names the lease: once it has run out, this delivery changes nothing any more.
    lease: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a delivery failed."""

    #: Scheme and host; the rest of a webhook's URL is often a secret.
    receiver: str | None = None
    #: Of HTTP; None: there was no answer.
    status: int | None = None
    error: str = ""


_UNTOLD = Refusal()


class WebhookLetter(BaseModel):
    """A delivery that was given up."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    #: Of the job; the message's own is `msg_` and this one.
    id: str
    died_at: Timestamp
    receiver: str | None = None
    status: int | None = None
    error: str = ""
    tries: int = 0

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class WebhookQueue:
    """Every call is atomic, and raises `StoreUnavailable`. Safe to share between threads."""

    def __init__(
        self,
        client: redis.Redis,
        key_prefix: str = "safelight:",
        backoff_s: Sequence[float] = BACKOFF_S,
        keep_s: float = KEEP_S,
    ) -> None:
        self._client = client
        self._keys = [f"{key_prefix}{name}" for name in _KEYS]
        self._backoff_ms = [int(pause * 1000) for pause in backoff_s]
        self._keep_ms = int(keep_s * 1000)
        self._script = client.register_script(_SCRIPT)

    def enqueue(self, job_id: str) -> None:
        """Deliver now; also brings a dead delivery back. The store does the same by itself when a job ends."""
        self._run("enqueue", job_id)

    def due(self, limit: int = 1, lease_s: float = 60.0) -> Sequence[Delivery]:
        """Take deliveries that are due, the longest overdue first; they are due again after `lease_s`."""
        lease, job_ids = self._run("lease", limit, int(lease_s * 1000))
        return [Delivery(job_id, lease) for job_id in job_ids]

    def done(self, delivery: Delivery) -> None:
        self._run("done", delivery.job_id, delivery.lease)

    def retry(self, delivery: Delivery, why: Refusal = _UNTOLD) -> bool:
        """Due again after the next pause; False if that was the last try, and the delivery is dead."""
        return self._fail(delivery, why, self._backoff_ms) != "dead"

    def bury(self, delivery: Delivery, why: Refusal = _UNTOLD) -> None:
        """Give up at once."""
        self._fail(delivery, why, [])

    def _fail(self, delivery: Delivery, why: Refusal, pauses_ms: Sequence[int]) -> str:
        reason = json.dumps({name: value for name, value in asdict(why).items() if value is not None})
        return str(self._run("fail", delivery.job_id, delivery.lease, reason, self._keep_ms, *pauses_ms))

    def dead(self, limit: int = 100) -> Sequence[str]:
        """Ids of jobs whose deliveries were given up, newest first."""
        return [letter.id for letter in self.letters(limit)]

    def letters(self, limit: int = 100) -> list[WebhookLetter]:
        """Deliveries that were given up, newest first."""
        return _letters(self._run("letters", limit))

    def revive(self, job_ids: Sequence[str]) -> list[str]:
        """Deliver now; those of the ids that were given up."""
        return list(self._run("revive", *job_ids)) if job_ids else []

    def drop(self, job_ids: Sequence[str]) -> int:
        """Forget letters, seen to; how many there were."""
        return int(self._run("drop", *job_ids)) if job_ids else 0

    def _run(self, *args: str | int) -> Any:
        try:
            return self._script(self._keys, args)
        except (redis.RedisError, OSError) as error:
            raise _explained(error, self._client) from error


class AsyncWebhookQueue:
    """The operator's side of `WebhookQueue` for asyncio."""

    def __init__(self, client: redis.asyncio.Redis, key_prefix: str = "safelight:") -> None:
        self._client = client
        self._keys = [f"{key_prefix}{name}" for name in _KEYS]
        self._script = client.register_script(_SCRIPT)

    async def letters(self, limit: int = 100) -> list[WebhookLetter]:
        return _letters(await self._run("letters", limit))

    async def revive(self, job_ids: Sequence[str]) -> list[str]:
        return list(await self._run("revive", *job_ids)) if job_ids else []

    async def drop(self, job_ids: Sequence[str]) -> int:
        return int(await self._run("drop", *job_ids)) if job_ids else 0

    async def _run(self, *args: str | int) -> Any:
        try:
            return await self._script(self._keys, args)
        except (redis.RedisError, OSError) as error:
            raise _explained(error, self._client) from error


def _explained(error: redis.RedisError | OSError, client: redis.Redis | redis.asyncio.Redis) -> Exception:
    return explain(error, where(client)) or error


def _letters(reply: Sequence[Any]) -> list[WebhookLetter]:
    return [
        WebhookLetter.model_validate({**json.loads(letter), "id": job_id, "died_at": moment(died)})
        for job_id, died, letter in reply
    ]

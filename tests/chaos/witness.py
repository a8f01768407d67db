"""Watches Redis from beside, past all proxies: every event of every job, how each ended first, and all leases it sees.

Streams go five minutes after their job has ended, so somebody has to read them while the run goes on.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any

import redis

from tasks.settings import Settings

_INTERVAL_S = 0.3


@dataclass(frozen=True, slots=True)
class Move:
    """A `status` or `done` event."""

    at_ms: int
    type: str
    status: str
    attempt: int
    worker: str | None
    is_wish: bool


class Witness:
    def __init__(self, settings: Settings) -> None:
        self._redis = redis.Redis.from_url(settings.redis_url, decode_responses=True, socket_timeout=5)
        self._prefix = settings.key_prefix
        self._last: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self.moves: dict[str, list[Move]] = {}
        #: Each record as it was when its job was first seen to have ended.
        self.ended: dict[str, dict[str, str]] = {}
        #: Ends of the leases that were seen, by job.
        self.leases: dict[str, set[int]] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """After a last look."""
        self._stop.set()
        self._thread.join(10)
        self.look(everything=True)
        self._redis.close()

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_S):
            try:
                self.look()
            except redis.RedisError:  # it is down now and then
                continue

    def look(self, *, everything: bool = False) -> None:
        for job_id, ends_ms in self._redis.zrange(f"{self._prefix}leases", 0, -1, withscores=True):
            self.leases.setdefault(job_id, set()).add(int(ends_ms))
        known: list[str] = self._redis.zrange(f"{self._prefix}jobs", 0, -1)
        wanted = [job_id for job_id in known if everything or job_id not in self.ended]
        if not wanted:
            return
        streams = {f"{self._prefix}events:{job_id}": self._last.get(job_id, "0") for job_id in wanted}
        found: Any = self._redis.xread(streams)  # type: ignore[arg-type]
        for key, entries in found.items() if isinstance(found, dict) else found:
            job_id = key.removeprefix(f"{self._prefix}events:")
            flat = entries[0] if isinstance(found, dict) else entries
            for event_id, fields in flat:
                self._last[job_id] = event_id
                self._note(job_id, event_id, fields["type"], json.loads(fields["data"]))

    def _note(self, job_id: str, event_id: str, kind: str, data: dict[str, Any]) -> None:
        if kind not in ("status", "done"):
            return
        at_ms = int(event_id.partition("-")[0])
        is_wish = bool(data.get("abort_requested"))
        move = Move(at_ms, kind, data["status"], data["attempt"], data.get("worker"), is_wish)
        self.moves.setdefault(job_id, []).append(move)
        if kind == "done" and job_id not in self.ended:
            self.ended[job_id] = self._redis.hgetall(f"{self._prefix}job:{job_id}")

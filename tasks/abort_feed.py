"""Hears of abort keys as they are written, by whomever: Redis tells one connection of each change below a prefix.

That is its *tracking* for client-side caches (6.0 and later), which needs no setting of the server. It is news, not
truth: the key is. Whoever listens looks at the key, and at all keys again whenever the feed was interrupted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

import redis

log = logging.getLogger(__name__)

_CHANNEL = "__redis__:invalidate"
#: How often it looks whether to stop, and after how many silent ones whether the server is still there.
_WAIT_S, _SILENT_WAITS = 1.0, 10
#: Until the next try of a server that could not be reached, and of one that refuses, or knows no such thing.
_PAUSE_S, _LONG_PAUSE_S = 1.0, 300.0
#: News of a job whose attempt is not there yet is kept for so long.
_KEEP_S = 30.0


class AbortFeed:
    """A thread between `start` and `stop`. `client` speaks RESP2, in which such news come as messages."""

    def __init__(self, client: redis.Redis, key_prefix: str) -> None:
        self._client = client
        self._prefix = f"{key_prefix}abort:"
        self._heard: dict[str, float] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="abort-feed", daemon=True)
        #: Whether it hears; each time that it begins to, the number of times grows.
        self.is_on = False
        self.beginnings = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def take(self, job_ids: Iterable[str]) -> list[str]:
        """Those of the ids whose keys have changed since they were last taken."""
        if not self._heard:
            return []
        with self._lock:
            return [job_id for job_id in job_ids if self._heard.pop(job_id, None) is not None]

    def _run(self) -> None:
        while not self._stop.is_set():
            pause_s = _PAUSE_S
            try:
                self._listen()
            except redis.ResponseError as error:
                pause_s = _LONG_PAUSE_S
                log.info("aborts are looked for by asking, as Redis does not tell of them: %s", error)
            except (redis.RedisError, OSError) as error:
                log.debug("the abort feed is interrupted: %s", error)
            except Exception:
                log.exception("the abort feed: unexpected error; it goes on")
            self.is_on = False
            self._stop.wait(pause_s)

    def _listen(self) -> None:
        """Raises what ends the connection: a new one tracks nothing, so it must not be made behind our back."""
        connection: Any = self._client.connection_pool.make_connection()
        try:
            connection.connect()
            number = _ask(connection, "CLIENT", "ID")
            _ask(connection, "CLIENT", "TRACKING", "ON", "REDIRECT", number, "BCAST", "PREFIX", self._prefix)
            _ask(connection, "SUBSCRIBE", _CHANNEL)
            self.beginnings, self.is_on = self.beginnings + 1, True
            silent = 0
            while not self._stop.is_set():
                if connection.can_read(timeout=_WAIT_S):
                    self._note(connection.read_response())
                    silent = 0
                    continue
                silent += 1
                if silent == _SILENT_WAITS:
                    connection.send_command("PING", check_health=False)
                elif silent == 2 * _SILENT_WAITS:
                    raise redis.TimeoutError("no sign of life")
        finally:
            connection.disconnect()

    def _note(self, message: Any) -> None:
        """`[message, channel, keys]`; no keys: all are gone."""
        if message[0] != "message":
            return
        if message[2] is None:
            self.beginnings += 1
            return
        now = time.monotonic()
        with self._lock:
            for job_id, heard_at in list(self._heard.items()):
                if now - heard_at < _KEEP_S:
                    break
                del self._heard[job_id]
            for key in message[2]:
                job_id = key.removeprefix(self._prefix)
                self._heard.pop(job_id, None)
                self._heard[job_id] = now


def _ask(connection: Any, *words: str) -> Any:
    connection.send_command(*words, check_health=False)
    return connection.read_response()

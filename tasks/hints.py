"""Celery messages that tell workers to look at a job. Lost ones are replaced by the sweep, doubled ones do no harm."""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from tasks.broker_queues import GENERATE, broker_priority, queue_for
from tasks.broker_url import broker_tls, broker_url, transport_options
from tasks.connection import SOCKET_TIMEOUT_S
from tasks.settings import Settings
from tasks.store import Hint

log = logging.getLogger(__name__)

_BATCH = 200
#: A failure that took so long was a silence, and a second try would hear no more; quicker ones are stale connections.
_SILENCE_S = 1.0


class Hinter:
    """Publishes hints over one connection, opened at first use. Thread-safe; never raises for a broker that is away.

    A broker that is silent costs a caller one timeout, however many call at once: who waited for the connection while
    another found it silent does not ask again. The jobs are safe, and the sweep sends their messages.
    """

    def __init__(self, settings: Settings) -> None:
        self._url = settings.redis_url
        self._origin = f"{os.getpid()}@{socket.gethostname()}"
        self._lock = threading.Lock()
        self._connection: Any = None
        self._producer: Any = None
        self._silent_at = -math.inf

    def publish(self, hints: Sequence[Hint]) -> bool:
        """Send a message for each; False, with a warning logged, if that failed even over a fresh connection."""
        if not hints:
            return True
        asked_at = time.monotonic()
        with self._lock:
            was_silent = asked_at < self._silent_at
            fault = "it was silent just now" if was_silent else self._fault(hints)
        if fault:
            log.warning("could not send %d messages (%s); the sweep sends them later", len(hints), fault)
        return not fault

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _fault(self, hints: Sequence[Hint]) -> str:
        """Sends them; empty, or why they could not be sent."""
        began_at = time.monotonic()
        fault = self._try(hints)
        if fault and time.monotonic() - began_at < _SILENCE_S:
            fault = self._try(hints)
        if fault and time.monotonic() - began_at >= _SILENCE_S:
            self._silent_at = time.monotonic()
        return fault

    def _try(self, hints: Sequence[Hint]) -> str:
        try:
            self._publish(hints)
        except Exception as error:
            self._disconnect()
            return str(error) or type(error).__name__
        return ""

    def _publish(self, hints: Sequence[Hint]) -> None:
        if self._producer is None:
            from kombu import Connection, Producer  # only those who publish pay for the import

            options = self._options()
            self._connection = Connection(
                broker_url(self._url), ssl=broker_tls(self._url) or False, transport_options=options
            )
            # Without this, the first use connects twice, with two seconds in between.
            self._connection.ensure_connection(max_retries=1, interval_start=0.1, timeout=_SILENCE_S)
            self._producer = Producer(self._connection.channel(), auto_declare=False)
        if len(hints) == 1:
            self._send(hints[0])
            return
        with self._producer.batch(_BATCH):
            for hint in hints:
                self._send(hint)

    def _send(self, hint: Hint) -> None:
        """A message of Celery's task protocol 2, straight to its queue by the default exchange.

        Without the headers whose absence means the same: a queue of a hundred thousand holds them all.
        """
        headers: dict[str, Any] = {"lang": "py", "task": GENERATE, "id": hint.job_id, "root_id": hint.job_id}
        headers["origin"] = self._origin
        body = json.dumps([[hint.job_id], {}, {}], separators=(",", ":"))
        self._producer.publish(
            body.encode(),
            routing_key=queue_for(hint.model),
            priority=broker_priority(hint.priority),
            content_type="application/json",
            content_encoding="utf-8",
            headers=headers,
            correlation_id=hint.job_id,
            reply_to="",
        )

    def _options(self) -> dict[str, Any]:
        """Publishing in batches needs a connection that does not repeat a command whose reply timed out."""
        bounds = {"socket_timeout": SOCKET_TIMEOUT_S, "socket_connect_timeout": SOCKET_TIMEOUT_S}
        options = transport_options(self._url) | bounds
        return {name: value for name, value in options.items() if name != "retry_on_timeout"}

    def _disconnect(self) -> None:
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            try:
                connection.close()
            except Exception as error:  # it is broken: that is why it goes
                log.debug("while closing: %s", error)

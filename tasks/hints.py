"""Celery messages that tell workers to look at a job. Lost ones are replaced by the sweep, doubled ones do no harm."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Sequence
from typing import Any

from tasks.broker_queues import GENERATE, broker_priority, queue_for
from tasks.broker_url import broker_tls, broker_url, transport_options
from tasks.settings import Settings
from tasks.store import Hint

log = logging.getLogger(__name__)

_BATCH = 200


class Hinter:
    """Publishes hints over one connection, opened at first use. Thread-safe; never raises for a broker that is away."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.redis_url
        self._origin = f"{os.getpid()}@{socket.gethostname()}"
        self._lock = threading.Lock()
        self._connection: Any = None
        self._producer: Any = None

    def publish(self, hints: Sequence[Hint]) -> bool:
        """Send a message for each; False, with a warning logged, if that failed even over a fresh connection."""
        if not hints:
            return True
        with self._lock:
            for is_last in (False, True):
                try:
                    self._publish(hints)
                    return True
                except Exception as error:
                    self._disconnect()
                    if is_last:
                        log.warning("could not send %d messages (%s); the sweep sends them later", len(hints), error)
        return False

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _publish(self, hints: Sequence[Hint]) -> None:
        if self._producer is None:
            from kombu import Connection, Producer  # only those who publish pay for the import

            options = self._options()
            self._connection = Connection(
                broker_url(self._url), ssl=broker_tls(self._url) or False, transport_options=options
            )
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
        options = transport_options(self._url) | {"socket_timeout": 3}
        return {name: value for name, value in options.items() if name != "retry_on_timeout"}

    def _disconnect(self) -> None:
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            try:
                connection.close()
            except Exception as error:  # it is broken: that is why it goes
                log.debug("while closing: %s", error)

"""Celery's consumer with one gap closed, as a message that cannot even be read is dropped and not handed back for ever;
and with two costs of each job cut, for its events and for the clients that kombu makes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.worker.consumer import Consumer
from kombu.exceptions import ContentDisallowed, DecodeError

log = logging.getLogger(__name__)

#: What the stock consumer meets in headers and bodies of wrong types. A connection that breaks is none of these.
_UNREADABLE = (TypeError, ValueError, LookupError, AttributeError, ContentDisallowed, DecodeError)


#: Events of jobs go out together, this long after the first of them.
EVENTS_S = 0.25


class CarefulConsumer(Consumer):  # type: ignore[misc]
    """The stock consumer ends at such a message and returns it to its queue, where the next consumer meets it."""

    _will_tell = False

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        keep_client(self.task_consumer.channel)
        receive = super().create_task_handler(*args, **kwargs)

        def receive_or_drop(message: Any) -> Any:
            try:
                return receive(message)
            except _UNREADABLE as error:
                log.error("a message that cannot be read was dropped: %s: %s", type(error).__name__, str(error)[:200])
                if not message.acknowledged:
                    message.reject_log_error(log, self.connection_errors)
                return None

        return receive_or_drop

    def on_send_event_buffered(self) -> None:
        """The stock consumer publishes whatever there is at each turn of its loop: three messages a job."""
        if self.hub and not self._will_tell:
            self._will_tell = True
            self.hub.call_later(EVENTS_S, self._tell)

    def _tell(self) -> None:
        self._will_tell = False
        self._flush_events()


def keep_client(channel: Any) -> None:
    """Make a channel of kombu's use one Redis client for its pool; it makes one for each command, which is dear."""
    make: Callable[..., Any] | None = getattr(channel, "_create_client", None)
    if make is None:  # another broker in a test
        return
    kept: list[Any] = []

    def create(asynchronous: bool = False) -> Any:
        if asynchronous:
            return make(asynchronous=True)
        if not kept or kept[0].connection_pool is not channel.pool:
            kept[:] = [make()]
        return kept[0]

    channel._create_client = create

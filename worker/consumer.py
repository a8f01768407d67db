"""Celery's consumer with one gap closed: a message that cannot even be read is dropped, not handed back for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.worker.consumer import Consumer
from kombu.exceptions import ContentDisallowed, DecodeError

log = logging.getLogger(__name__)

#: What the stock consumer meets in headers and bodies of wrong types. A connection that breaks is none of these.
_UNREADABLE = (TypeError, ValueError, LookupError, AttributeError, ContentDisallowed, DecodeError)


class CarefulConsumer(Consumer):  # type: ignore[misc]
    """The stock consumer ends at such a message and returns it to its queue, where the next consumer meets it."""

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
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

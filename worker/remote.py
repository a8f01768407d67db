"""`celery control shutdown`, which would end Celery's consumer under jobs that go on: here it drains the node."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.worker.control import Panel

log = logging.getLogger(__name__)


def answer_shutdown(drain: Callable[[], None]) -> None:
    """Replace Celery's command for this process. `drain` is called in the consumer's thread and must not block."""

    def shutdown(state: Any, msg: str = "", **_: Any) -> dict[str, str]:
        log.warning("asked by Celery's remote control to shut down: draining")
        drain()
        return {"ok": "draining"}

    Panel.data["shutdown"] = shutdown

"""What one examination is about: the settings, the limits, and what areas share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tasks.doctor.probe.worker import WorkerProbe
from tasks.settings import Settings

DEFAULT_API_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Scope:
    settings: Settings
    #: For one question to a server.
    limit_s: float = 3.0
    #: None: look where an API usually is, and say nothing bad if it is not there.
    api_url: str | None = None
    #: What named it, for the remedy.
    api_url_from: str = "--api"
    #: Seconds since the epoch; only tests give another.
    now: Callable[[], float] = time.time
    worker: WorkerProbe = field(default_factory=WorkerProbe)

"""Plain Celery and diffusers, as people write it today: one task is one call; the model is loaded once a process."""

from __future__ import annotations

import base64
import os
from typing import Any

from celery import Celery
from celery.signals import worker_process_init

from bench.peers.model import Model

app = Celery("plain", broker=os.environ["BENCH_REDIS"], backend=os.environ["BENCH_REDIS"])
app.conf.update(
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    broker_connection_retry_on_startup=True,
    # The pool kills a process that has not loaded its model in this time; the default is 4 s.
    worker_proc_alive_timeout=300,
)
models: list[Model] = []


@worker_process_init.connect  # type: ignore[untyped-decorator]
def load(**_: Any) -> None:
    models.append(Model())


@app.task(name="render")  # type: ignore[untyped-decorator]
def render(request: dict[str, Any]) -> str:
    [picture] = models[0].render([request])
    return base64.b64encode(picture).decode()

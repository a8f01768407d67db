"""celery-batches: the worker collects messages by count and time, and its task gets a list."""

from __future__ import annotations

import base64
import os
from typing import Any

from celery import Celery
from celery.signals import worker_process_init
from celery_batches import Batches, SimpleRequest

from bench.peers.model import MAX_ROWS, Model

app = Celery("batches", broker=os.environ["BENCH_REDIS"], backend=os.environ["BENCH_REDIS"])
app.conf.update(
    # Fewer prefetched messages than a batch has would never fill one.
    worker_prefetch_multiplier=4 * MAX_ROWS,
    broker_connection_retry_on_startup=True,
    # The pool kills a process that has not loaded its model in this time; the default is 4 s.
    worker_proc_alive_timeout=300,
)
models: list[Model] = []


@worker_process_init.connect  # type: ignore[untyped-decorator]
def load(**_: Any) -> None:
    models.append(Model())


@app.task(  # type: ignore[untyped-decorator]
    name="render", base=Batches, flush_every=MAX_ROWS, flush_interval=float(os.environ["BENCH_WINDOW_S"])
)
def render(requests: list[SimpleRequest]) -> None:
    pictures = models[0].render([one.args[0] for one in requests])
    for one, picture in zip(requests, pictures, strict=True):
        app.backend.mark_as_done(one.id, base64.b64encode(picture).decode(), request=one)

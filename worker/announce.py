"""What a node says of itself, from its first moment on: in its beats, and on its own port for Prometheus if asked."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from engine import DiffusionEngine
from engine.stats import ROWS_BOUNDS, STEP_BOUNDS_S
from tasks.errors import ConfigError
from tasks.store import JobStore
from worker.attempt import Attempts
from worker.figures import NodeFigures
from worker.model_shelf import ModelShelf
from worker.outlook import Outlook

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = logging.getLogger(__name__)

BEAT_INTERVAL_S = 2.0
#: After so long without another the worker is given up.
BEAT_TTL_S = 4 * BEAT_INTERVAL_S
#: Groups of running rows that a beat tells of, for each model.
_MAX_GROUPS = 16
State = Literal["starting", "ready", "draining"]


class Announcer:
    """`engines` is filled while the models load; the state is `starting` until then. A `shelf` tells where each is."""

    def __init__(
        self,
        name: str,
        host: str,
        models: Sequence[str],
        engines: Mapping[str, DiffusionEngine],
        attempts: Attempts,
        figures: NodeFigures,
        draining: Callable[[], bool],
        drain: Callable[[], object],
        shelf: ModelShelf | None = None,
    ) -> None:
        self._shelf = shelf
        self._name = name
        self._host = host
        self._models = models
        self._engines = engines
        self._attempts = attempts
        self._figures = figures
        self._outlook = Outlook(attempts, engines, figures)
        self._draining = draining
        self._drain = drain

    def beat(self, store: JobStore) -> None:
        """The answer may be that somebody wants this process to drain; others are told at once that it does."""
        if self._tell(store) and not self._draining():
            log.info("asked to drain")
            self._drain()
            self._tell(store)

    def _tell(self, store: JobStore) -> bool:
        return store.beat(self._name, self.info(), ttl_s=BEAT_TTL_S)

    def info(self) -> dict[str, Any]:
        state = self._state()
        engines = dict(self._engines)
        return {
            "name": self._name,
            "host": self._host,
            "pid": os.getpid(),
            "state": state,
            "ttl_s": BEAT_TTL_S,
            "jobs": len(self._attempts),
            "uploads": self._figures.uploads(),
            "models": {name: self._told(name, engines.get(name)) for name in self._models},
        }

    def _state(self) -> State:
        if self._draining():
            return "draining"
        is_filled = len(self._engines) == len(self._models) if self._shelf is None else self._shelf.is_filled
        return "ready" if is_filled else "starting"

    def _told(self, name: str, engine: DiffusionEngine | None) -> dict[str, Any]:
        """Where a model is, and how it does if it is loaded."""
        place = {} if self._shelf is None else self._shelf.told(name)
        return {**place, **({} if engine is None else self._model(name, engine))}

    def _model(self, name: str, engine: DiffusionEngine) -> dict[str, Any]:
        stats = engine.stats()
        memory = engine.device_memory()
        groups = engine.running_groups()[:_MAX_GROUPS]
        return {
            "mode": stats.mode,
            "device": stats.device,
            "dtype": stats.dtype,
            "waiting_rows": stats.waiting_rows,
            "running_rows": stats.running_rows,
            "batches": stats.batches,
            "rows_done": stats.rows_done,
            "mean_batch_rows": stats.mean_batch_rows,
            "step_ms": stats.step_ms,
            "memory": None if memory is None else dataclasses.asdict(memory),
            "running": [{"rows": group.rows, "key": _plain(group.key)} for group in groups],
            "speed": None if (speed := self._outlook.speed(name)) is None else dataclasses.asdict(speed),
            "figures": {
                "step_seconds": {"bounds": STEP_BOUNDS_S, "counts": stats.step_counts, "sum": stats.step_seconds},
                "batch_rows": {"bounds": ROWS_BOUNDS, "counts": stats.rows_counts, "sum": stats.batch_rows},
            },
        }


def _plain(key: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON can carry of a key; the adapter's own part of it means nothing to others."""
    return {name: value for name, value in key.items() if name != "extra" and value is not None}


def serve_metrics(port: int, announcer: Announcer) -> Callable[[], None]:
    """Serve this node's own figures on every address; returns how to stop. Raises `ConfigError`."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server

        from tasks.exposition import worker_families
    except ImportError as error:
        raise ConfigError("SAFELIGHT_METRICS_PORT: prometheus-client is not installed") from error

    class Here:
        def collect(self) -> Iterator[Metric]:
            yield from worker_families([announcer.info()])

    registry = CollectorRegistry()
    registry.register(Here())
    try:
        server, thread = start_http_server(port, registry=registry)
    except OSError as error:
        raise ConfigError(f"SAFELIGHT_METRICS_PORT: cannot listen on {port}: {error.strerror}") from None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop

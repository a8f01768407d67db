"""What Prometheus scrapes. Requests are counted as they pass, queues are asked for at the scrape."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasks.store import QueueStats

_BUCKETS_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60)
CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """One registry for one app, so that two apps in a process do not share counters."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "safelight_http_requests", "Answered requests.", ("method", "route", "status"), registry=registry
        )
        self.seconds = Histogram(
            "safelight_http_request_seconds",
            "Time to the first byte of the answer.",
            ("method", "route"),
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self.store_up = Gauge("safelight_store_up", "1 if Redis answered this scrape.", registry=registry)
        self.workers = Gauge("safelight_workers", "Workers with a live heartbeat.", registry=registry)
        self.jobs = Gauge("safelight_jobs", "Live jobs by model and status.", ("model", "status"), registry=registry)
        self.oldest_s = Gauge(
            "safelight_queue_oldest_seconds", "Age of the oldest job that waits, or 0.", ("model",), registry=registry
        )

    def set_queues(self, queues: Sequence[QueueStats], num_workers: int) -> None:
        self.store_up.set(1)
        self.workers.set(num_workers)
        for queue in queues:
            self.jobs.labels(queue.model, "queued").set(queue.queued)
            self.jobs.labels(queue.model, "running").set(queue.running)
            self.oldest_s.labels(queue.model).set(queue.oldest_s or 0)

    def set_store_down(self) -> None:
        """Old figures of the queues would look alive: drop them."""
        self.store_up.set(0)
        self.workers.set(math.nan)
        self.jobs.clear()
        self.oldest_s.clear()

    def text(self) -> bytes:
        return generate_latest(self.registry)


class CountRequests:
    """ASGI middleware: counts by route template, never by raw path, so that labels stay few."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()

        async def observe(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = _label(scope)
                method = scope["method"] if scope["method"] in _METHODS else "other"
                self._metrics.seconds.labels(method, route).observe(time.perf_counter() - started)
                self._metrics.requests.labels(method, route, message["status"]).inc()
            await send(message)

        await self._app(scope, receive, observe)


def _label(scope: Scope) -> str:
    route = scope.get("route")
    if isinstance(route, APIRoute):
        return route.path
    path: str = scope["path"]
    return path if path in _PLAIN else "/page" if path.startswith(("/page/", "/docs/")) else "unmatched"


_PLAIN = frozenset({"/", "/docs", "/openapi.json"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

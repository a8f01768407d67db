"""What Prometheus scrapes. Requests are counted as they pass; the store is asked for all else at the scrape."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasks.exposition import Figures, queue_families, tenant_families, total_families, worker_families
from tasks.store import QueueStats, Totals

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
        self._figures = Figures()
        registry.register(self._figures)

    def set_store(
        self,
        queues: Sequence[QueueStats],
        totals: Totals,
        workers: Sequence[Mapping[str, Any]],
        tenants: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.store_up.set(1)
        self.workers.set(len(workers))
        of_jobs = [*queue_families(queues), *tenant_families(tenants), *total_families(totals)]
        self._figures.families = [*of_jobs, *worker_families(workers)]

    def set_store_down(self) -> None:
        """Old figures would look alive: drop them."""
        self.store_up.set(0)
        self.workers.set(math.nan)
        self._figures.families = []

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
                route = route_of(scope)
                method = scope["method"] if scope["method"] in _METHODS else "other"
                self._metrics.seconds.labels(method, route).observe(time.perf_counter() - started)
                self._metrics.requests.labels(method, route, message["status"]).inc()
            await send(message)

        await self._app(scope, receive, observe)


def route_of(scope: Scope) -> str:
    """The template of the route, one of few."""
    route = scope.get("route")
    if isinstance(route, APIRoute):
        return route.path
    path: str = scope["path"]
    return path if path in _PLAIN else "/page" if path.startswith(("/page/", "/docs/")) else "unmatched"


_PLAIN = frozenset({"/", "/docs", "/openapi.json"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

"""What a node measures beside its engines: tries to upload, and what attempts take besides their steps. Thread-safe."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, Literal

from tasks.job import JobMetrics
from tasks.tally import BOUNDS_S

_SMOOTHING = 0.2


class NodeFigures:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._upload_counts = [0] * (len(BOUNDS_S) + 1)
        self._upload_s = 0.0
        self._failures = {"retried": 0, "given_up": 0}
        self._rest_s: dict[str, float] = {}
        #: What waits for the object store.
        self.backlog: Callable[[], Mapping[str, object]] = dict

    def uploaded(self, seconds: float) -> None:
        with self._lock:
            self._upload_counts[bisect_left(BOUNDS_S, seconds)] += 1
            self._upload_s += seconds

    def upload_failed(self, outcome: Literal["retried", "given_up"]) -> None:
        with self._lock:
            self._failures[outcome] += 1

    def succeeded(self, model: str, metrics: JobMetrics) -> None:
        """Learn what stands around the steps of a job of this model."""
        parts = (metrics.preprocess_ms, metrics.decode_ms, metrics.upload_ms)
        rest_s = sum(part or 0.0 for part in parts) / 1000
        with self._lock:
            mean = self._rest_s.get(model, rest_s)
            self._rest_s[model] = mean + _SMOOTHING * (rest_s - mean)

    def rest_s(self, model: str) -> float:
        """Seconds that inputs, texts, decoding and upload of a job take lately; 0 before the first."""
        return self._rest_s.get(model, 0.0)

    def uploads(self) -> dict[str, Any]:
        """For a beat."""
        with self._lock:
            seconds = {"counts": list(self._upload_counts), "sum": round(self._upload_s, 6)}
            told = {"seconds": seconds, "failures": dict(self._failures)}
        return {**told, **self.backlog()}

"""BentoML with adaptive batching: a batchable API takes lists, and its dispatcher joins those of several callers."""

from __future__ import annotations

import base64
from typing import Any

import bentoml

from bench.peers.model import MAX_ROWS, Model

#: a request that would take longer is refused, so this is out of the way of any queue of the bench
MAX_LATENCY_MS = 3_600_000


@bentoml.service(workers=1, traffic={"timeout": 3_600})  # type: ignore[untyped-decorator]
class Pictures:
    def __init__(self) -> None:
        self.model = Model()

    @bentoml.api(batchable=True, max_batch_size=MAX_ROWS, max_latency_ms=MAX_LATENCY_MS, route="/render")
    def render(self, requests: list[dict[str, Any]]) -> list[str]:
        return [base64.b64encode(picture).decode() for picture in self.model.render(requests)]

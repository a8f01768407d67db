"""Engines on a model of arithmetic, and requests for them."""

from typing import Any

import numpy as np

from engine import (
    Completed,
    DiffusionEngine,
    DiffusionRequest,
    EngineConfig,
    Event,
    OutputStream,
    SamplingParams,
)
from engine.testing import FakeAdapter, FakeSpec, StepGate

REQUEST_FIELDS = {"prompt", "priority", "solo", "deadline_s"}
SOON_S = 20.0


def request(request_id: str, **changes: Any) -> DiffusionRequest:
    top = {name: value for name, value in changes.items() if name in REQUEST_FIELDS}
    rest = {name: value for name, value in changes.items() if name not in REQUEST_FIELDS}
    params = SamplingParams(**{"height": 8, "width": 8, "seed": 0, "num_inference_steps": 4, **rest})
    return DiffusionRequest(**{"request_id": request_id, "prompt": request_id, "params": params, **top})


def config(**changes: Any) -> EngineConfig:
    return EngineConfig(**{"model": "fake:", "warmup": False, "admission_wait_ms": 20, **changes})


def completed(event: Event) -> Completed:
    assert isinstance(event, Completed), event
    return event


def solo_pixels(wanted: DiffusionRequest) -> list[np.ndarray]:
    with DiffusionEngine.make_engine(config()) as engine:
        return [media.pixels for media in completed(engine.submit(wanted).result(SOON_S)).media]


def submit_together(engine: DiffusionEngine, *requests: DiffusionRequest) -> list[OutputStream]:
    """Under a pause, so that the scheduler sees them all at once however slow this machine is."""
    engine.pause()
    streams = [engine.submit(one) for one in requests]
    engine.resume()
    return streams


class Gated:
    """An engine whose device thread stands still in front of each step until it is let through."""

    def __init__(self, spec: FakeSpec | None = None, **changes: Any) -> None:
        self.gate = StepGate()
        self.adapter = FakeAdapter(spec, sleep=self.gate)
        self.engine = DiffusionEngine.make_engine(config(**{"admission_wait_ms": 0, **changes}), adapter=self.adapter)

    def __enter__(self) -> "Gated":
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.open()
        self.engine.close()

"""Random pipelines of three families: each served step by step, and alone in request mode."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engine import (
    Completed,
    DiffusionEngine,
    DiffusionRequest,
    EngineConfig,
    Event,
    testing_pipelines,
)
from engine.adapter import RowCall
from engine.adapters.stepwise import StepPipeline
from engine.adapters.whole import WholePipeline
from tests.contract.random_models import PROMPTS, SIZE, SOON_S, Pixels, request_of

FAMILIES = ("stable_diffusion", "stable_diffusion_3", "flux")
STEPS = 4


def request(request_id: str, prompt: str = PROMPTS[0], **changes: Any) -> DiffusionRequest:
    return request_of(request_id, prompt, STEPS, **changes)


def mask() -> Image.Image:
    pixels = np.zeros((SIZE, SIZE), np.uint8)
    pixels[: SIZE // 2] = 255
    return Image.fromarray(pixels)


class Model:
    """One random pipeline: served step by step, and served alone, one row a call, in request mode."""

    def __init__(self, family: str, folder: Path) -> None:
        getattr(testing_pipelines, family)().save_pretrained(folder)
        self.folder = str(folder)
        config = EngineConfig(model=self.folder, num_threads=1, mode="step", warmup=False)
        self.adapter = StepPipeline(config)
        self.forwards: list[tuple[str, int]] = []
        self._advance = self.adapter.advance
        self.adapter.advance = self._record  # type: ignore[method-assign]
        self.engine = DiffusionEngine.make_engine(config, adapter=self.adapter)
        alone = EngineConfig(model=self.folder, num_threads=1, mode="request", warmup=False, max_batch_rows=1)
        self.alone = DiffusionEngine.make_engine(alone, adapter=WholePipeline(alone))

    def _record(self, calls: Sequence[RowCall]) -> None:
        self.forwards.append((calls[0].stage, len(calls)))
        self._advance(calls)

    def run(self, *requests: DiffusionRequest) -> list[Event]:
        self.forwards.clear()
        self.engine.pause()
        streams = [self.engine.submit(one) for one in requests]
        self.engine.resume()
        return [stream.result(SOON_S) for stream in streams]

    def pixels(self, *requests: DiffusionRequest) -> list[Pixels]:
        return [pixels(event) for event in self.run(*requests)]

    def expected(self, wanted: DiffusionRequest) -> Pixels:
        return pixels(self.alone.submit(wanted).result(SOON_S))

    @property
    def denoised(self) -> list[int]:
        return [num_rows for stage, num_rows in self.forwards if stage == "denoising"]

    def close(self) -> None:
        self.engine.close()
        self.alone.close()


def pixels(event: Event) -> Pixels:
    assert isinstance(event, Completed), event
    return event.media[0].pixels

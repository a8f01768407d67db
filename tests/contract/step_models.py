"""Random pipelines of three families: each served step by step, and alone in request mode."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from engine import (
    Completed,
    DiffusionEngine,
    DiffusionRequest,
    EngineConfig,
    Event,
    SamplingParams,
    testing_pipelines,
)
from engine.adapter import RowCall
from engine.adapters.stepwise import StepPipeline
from engine.adapters.whole import WholePipeline

Pixels = NDArray[np.uint8]
FAMILIES = ("stable_diffusion", "stable_diffusion_3", "flux")
PROMPTS = ("a red house", "two boats at night", "", "a small blue star above a very large green moon")
SIZE = 16
STEPS = 4
SOON_S = 60.0
REQUEST_FIELDS = {"image", "mask_image", "priority", "solo", "deadline_s"}


def request(request_id: str, prompt: str = PROMPTS[0], **changes: Any) -> DiffusionRequest:
    top = {name: value for name, value in changes.items() if name in REQUEST_FIELDS}
    rest = {name: value for name, value in changes.items() if name not in REQUEST_FIELDS}
    params = SamplingParams(**{"height": SIZE, "width": SIZE, "num_inference_steps": STEPS, "seed": 0, **rest})
    return DiffusionRequest(request_id=request_id, prompt=prompt, params=params, **top)


def picture(seed: int = 0, size: tuple[int, int] = (SIZE, SIZE)) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


def mask() -> Image.Image:
    pixels = np.zeros((SIZE, SIZE), np.uint8)
    pixels[: SIZE // 2] = 255
    return Image.fromarray(pixels)


def assert_close(one: Pixels, other: Pixels) -> None:
    """Equal but for rounding: 1e-5 in float32 moves few pixels, and those by one level."""
    difference = np.abs(one.astype(int) - other.astype(int))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.01


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


@contextmanager
def models_in(paths: pytest.TempPathFactory) -> Iterator[Callable[[str], Model]]:
    """By family, each made when it is first asked for."""
    made: dict[str, Model] = {}

    def get(family: str) -> Model:
        if family not in made:
            made[family] = Model(family, paths.mktemp(family))
        return made[family]

    yield get
    for model in made.values():
        model.close()

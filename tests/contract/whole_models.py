"""Random pipelines of three families: each in an engine, and under plain diffusers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
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
from engine.adapters.whole import WholePipeline

Pixels = NDArray[np.uint8]
#: with the tokens of a prompt that each reads: CLIP's own bound, or T5's, less two special tokens
FAMILIES = {"stable_diffusion": 30, "stable_diffusion_3": 254, "flux": 510}
PROMPTS = ("a red house", "two boats at night", "", "a small blue star above a very large green moon")
SIZE = 16
STEPS = 3
SOON_S = 60.0
REQUEST_FIELDS = {"image", "mask_image", "priority", "solo", "deadline_s"}


def request(request_id: str, prompt: str = PROMPTS[0], **changes: Any) -> DiffusionRequest:
    top = {name: value for name, value in changes.items() if name in REQUEST_FIELDS}
    rest = {name: value for name, value in changes.items() if name not in REQUEST_FIELDS}
    params = SamplingParams(**{"height": SIZE, "width": SIZE, "num_inference_steps": STEPS, "seed": 0, **rest})
    return DiffusionRequest(request_id=request_id, prompt=prompt, params=params, **top)


def completed(event: Event) -> Completed:
    assert isinstance(event, Completed), event
    return event


def picture(seed: int = 0, size: tuple[int, int] = (SIZE, SIZE)) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def assert_close(one: Pixels, other: Pixels) -> None:
    """Equal but for rounding: 1e-5 in float32 moves few pixels, and those by one level."""
    difference = np.abs(one.astype(int) - other.astype(int))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.01


class Model:
    """One random pipeline in a folder, the engine that serves it, and the same folder under plain diffusers."""

    def __init__(self, family: str, folder: Path) -> None:
        getattr(testing_pipelines, family)().save_pretrained(folder)
        self.folder = str(folder)
        self.num_tokens = FAMILIES[family]
        self.plain = diffusers.DiffusionPipeline.from_pretrained(folder, dtype=torch.float32)
        self.plain.set_progress_bar_config(disable=True)
        config = EngineConfig(model=self.folder, num_threads=1, admission_wait_ms=0)
        self.adapter = WholePipeline(config)
        self.engine = DiffusionEngine.make_engine(config, adapter=self.adapter)

    def run(self, *requests: DiffusionRequest) -> list[Event]:
        """All at once, so that what can share a batch does."""
        self.engine.pause()
        streams = [self.engine.submit(one) for one in requests]
        self.engine.resume()
        return [stream.result(SOON_S) for stream in streams]

    def pixels(self, *requests: DiffusionRequest) -> list[Pixels]:
        """The first output of each."""
        return [completed(event).media[0].pixels for event in self.run(*requests)]

    def expected(self, wanted: DiffusionRequest, pipeline: Any = None, **changes: Any) -> Pixels:
        """What plain diffusers makes of a request of one output."""
        params = wanted.params
        arguments = {
            "prompt": wanted.prompt,
            "height": params.height,
            "width": params.width,
            "num_inference_steps": params.num_inference_steps,
            "guidance_scale": params.guidance_scale,
            "generator": torch.Generator("cpu").manual_seed(params.seed),
            **({"negative_prompt": params.negative_prompt} if params.negative_prompt is not None else {}),
            **changes,
        }
        return np.asarray((pipeline or self.plain)(**arguments).images[0])


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
        model.engine.close()

"""What the contract tests of both modes ask of random pipelines, and how they look at what comes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from engine import DiffusionRequest, SamplingParams

Pixels = NDArray[np.uint8]
PROMPTS = ("a red house", "two boats at night", "", "a small blue star above a very large green moon")
SIZE = 16
SOON_S = 60.0
REQUEST_FIELDS = {"image", "mask_image", "priority", "solo", "deadline_s"}


def request_of(request_id: str, prompt: str, num_steps: int, **changes: Any) -> DiffusionRequest:
    top = {name: value for name, value in changes.items() if name in REQUEST_FIELDS}
    rest = {name: value for name, value in changes.items() if name not in REQUEST_FIELDS}
    params = SamplingParams(**{"height": SIZE, "width": SIZE, "num_inference_steps": num_steps, "seed": 0, **rest})
    return DiffusionRequest(request_id=request_id, prompt=prompt, params=params, **top)


def picture(seed: int = 0, size: tuple[int, int] = (SIZE, SIZE)) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


def assert_close(one: Pixels, other: Pixels) -> None:
    """Equal but for rounding: 1e-5 in float32 moves few pixels, and those by one level."""
    difference = np.abs(one.astype(int) - other.astype(int))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.01


class Served(Protocol):
    def close(self) -> None: ...


M = TypeVar("M", bound=Served)


@contextmanager
def models_in(paths: pytest.TempPathFactory, make: Callable[[str, Path], M]) -> Iterator[Callable[[str], M]]:
    """By family, each made when it is first asked for."""
    made: dict[str, M] = {}

    def get(family: str) -> M:
        if family not in made:
            made[family] = make(family, paths.mktemp(family))
        return made[family]

    yield get
    for model in made.values():
        model.close()

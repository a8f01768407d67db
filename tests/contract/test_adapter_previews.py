"""Previews of real pipelines: the picture shows before it is done, in both modes, row by row."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from engine import Completed, DiffusionEngine, DiffusionRequest, EngineConfig, Preview, SamplingParams
from engine.adapters.previewer import Previewer
from tests.contract.families import FAMILIES

SOON_S = 120.0
PROMPTS = ("a red house with a blue roof beside a tree under a yellow sun", "a white house with a red roof at night")


def likeness(one: Image.Image, other: Image.Image) -> float:
    """Correlation of two pictures, both made small."""
    small = (image.convert("RGB").resize((12, 12), Image.Resampling.BOX) for image in (one, other))
    a, b = (np.asarray(image, float).ravel() for image in small)
    return float(np.corrcoef(a, b)[0, 1])


@pytest.fixture(scope="module", params=["request", "step"])
def engine(request: pytest.FixtureRequest) -> Iterator[DiffusionEngine]:
    torch.set_num_threads(1)
    config = EngineConfig(model="bundled:tiny", mode=request.param, num_threads=1)
    with DiffusionEngine.make_engine(config) as made:
        first = list(made.submit(wish(1, seed=99)))
        assert not [event for event in first if isinstance(event, Preview)], "nothing is learned yet"
        yield made


def wish(index: int, **changes: Any) -> DiffusionRequest:
    fields = {"height": 96, "width": 96, "seed": 3 + index, "num_inference_steps": 12, "preview_every": 4, **changes}
    params = SamplingParams(**fields)
    return DiffusionRequest(request_id=str(index), prompt=PROMPTS[index], params=params)


def test_each_row_sees_its_own_picture_come(engine: DiffusionEngine) -> None:
    engine.pause()
    streams = [engine.submit(wish(index)) for index in range(2)]
    engine.resume()
    finals, lasts = [], []
    for stream in streams:
        events = list(stream)
        done = events[-1]
        assert isinstance(done, Completed)
        previews = [event for event in events if isinstance(event, Preview)]
        assert [event.step for event in previews] == [4, 8, 12]
        assert max(previews[0].image.size) <= 256
        finals.append(Image.fromarray(done.media[0].pixels))
        lasts.append(previews[-1].image)
        assert likeness(previews[1].image, finals[-1]) > 0.8, "two thirds through the picture is there"
    for index in range(2):
        assert likeness(lasts[index], finals[index]) > 0.9
        assert likeness(lasts[index], finals[index]) > likeness(lasts[index], finals[1 - index])


def test_previews_change_no_pixel(engine: DiffusionEngine) -> None:
    plain, watched = (engine.submit(wish(0, preview_every=every)).result(SOON_S) for every in (0, 2))
    assert isinstance(plain, Completed)
    assert isinstance(watched, Completed)
    assert np.array_equal(plain.media[0].pixels, watched.media[0].pixels)


@pytest.mark.parametrize("name", ["flux", "qwen_image", "stable_diffusion_3", "sana"])
def test_packed_and_flow_latents_have_previews(tmp_path: Any, name: str) -> None:
    from engine import testing_pipelines

    family = FAMILIES[name]
    getattr(testing_pipelines, name)().save_pretrained(tmp_path)
    config = EngineConfig(model=str(tmp_path), num_threads=1, mode="request")
    with DiffusionEngine.make_engine(config) as engine:
        engine.submit(family.request("first", num_inference_steps=4)).result(SOON_S)
        events = list(engine.submit(family.request(num_inference_steps=3, preview_every=1)))
        assert isinstance(events[-1], Completed)
        previews = [event for event in events if isinstance(event, Preview)]
        assert len(previews) == 3
        width, height = previews[0].image.size
        assert width == height


def test_a_linear_decoder_is_learned_exactly() -> None:
    draw = np.random.default_rng(0)
    mixing = draw.normal(size=(4, 3)) / 20
    latents = torch.from_numpy(draw.normal(size=(2, 4, 16, 16)))
    pictures = [np.clip(np.tensordot(row.numpy(), mixing, axes=(0, 0)) + 0.5, 0, 1) for row in latents]
    previewer = Previewer()
    assert not previewer.can
    previewer.learn(latents, pictures)
    drawn = np.asarray(previewer.picture(latents[:1]).resize((16, 16), Image.Resampling.BOX), float) / 255
    assert np.abs(drawn - pictures[0]).mean() < 0.02

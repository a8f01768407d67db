"""The law of BatchKey: rows of equal key always collate, and what they share is what each would say alone."""

import dataclasses
from collections import defaultdict
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from engine import DiffusionRequest, EngineConfig, SamplingParams, testing_pipelines
from engine.adapters.whole import WholePipeline
from engine.batch import Batch
from engine.batch_key import BatchKey
from engine.errors import RequestError
from engine.request import Row

PER_ROW = {"prompt", "negative_prompt", "generator", "image", "mask_image"}
SIZES = st.sampled_from([16, 24])


def images(mode: str) -> st.SearchStrategy[Image.Image | None]:
    sizes = st.tuples(SIZES, SIZES)
    return st.none() | sizes.map(lambda size: Image.new(mode, size))


@st.composite
def requests(draw: st.DrawFn) -> DiffusionRequest:
    params = SamplingParams(
        height=draw(SIZES),
        width=draw(SIZES),
        num_inference_steps=draw(st.sampled_from([1, 2, 3])),
        guidance_scale=draw(st.sampled_from([1.0, 4.0])),
        seed=draw(st.integers(0, 3)),
        num_outputs=draw(st.integers(1, 2)),
        negative_prompt=draw(st.sampled_from([None, "", "boats"])),
        strength=draw(st.sampled_from([None, 0.1, 0.8, 1.0])),
        noise_scheduler=draw(st.sampled_from([None, "ddim", "euler", "flow_euler"])),
    )
    image = draw(images("RGB"))
    mask = None if image is None else draw(images("L"))
    prompt = draw(st.sampled_from(["", "a house", "word " * 40]))
    return DiffusionRequest(request_id="r", prompt=prompt, params=params, image=image, mask_image=mask)


@pytest.fixture(scope="module", params=["stable_diffusion", "flux"])
def adapter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp(request.param)
    getattr(testing_pipelines, request.param)().save_pretrained(folder)
    made = WholePipeline(EngineConfig(model=str(folder), num_threads=1))
    made.load()
    yield made
    made.close()


def grouped(adapter: WholePipeline, drawn: list[DiffusionRequest]) -> dict[BatchKey, list[DiffusionRequest]]:
    groups: dict[BatchKey, list[DiffusionRequest]] = defaultdict(list)
    for one in drawn:
        try:
            groups[adapter.batch_key(one)].append(one)
        except RequestError:
            continue  # refused alone, before any batch
    return groups


def collated(adapter: WholePipeline, key: BatchKey, members: list[DiffusionRequest]) -> dict[str, Any]:
    rows = tuple(Row(one, k) for one in members for k in range(one.params.num_outputs))
    return adapter._pipeline(key.task).arguments(Batch(key, rows))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(requests(), min_size=1, max_size=12))
def test_equal_keys_collate(adapter: WholePipeline, drawn: list[DiffusionRequest]) -> None:
    for key, members in grouped(adapter, drawn).items():
        together = collated(adapter, key, members)
        num_rows = sum(one.params.num_outputs for one in members)
        assert {name: len(together[name]) for name in PER_ROW & together.keys()} == dict.fromkeys(
            PER_ROW & together.keys(), num_rows
        )
        assert None not in together.get("negative_prompt", [])
        for name in {"image", "mask_image"} & together.keys():
            assert len({(image.size, image.mode) for image in together[name]}) == 1
        for one in members:
            alone = collated(adapter, key, [one])
            assert alone.keys() == together.keys()
            for name in alone.keys() - PER_ROW:
                assert alone[name] == together[name]


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(requests(), min_size=4, max_size=8))
def test_collated_rows_run(adapter: WholePipeline, drawn: list[DiffusionRequest]) -> None:
    for key, members in grouped(adapter, drawn).items():
        rows = tuple(Row(one, 0) for one in members)
        outcomes = adapter.run(Batch(key, rows), lambda *_: None)
        assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]


@pytest.mark.parametrize(
    "changes",
    [
        {"height": 24},
        {"width": 24},
        {"num_inference_steps": 9},
        {"guidance_scale": 2.0},
        {"noise_scheduler": "euler"},
        {"negative_prompt": ""},
    ],
)
def test_what_a_call_shares_is_in_the_key(adapter: WholePipeline, changes: dict[str, Any]) -> None:
    params = SamplingParams(height=16, width=16, seed=0)
    one = DiffusionRequest(request_id="a", prompt="", params=params)
    other = dataclasses.replace(one, params=dataclasses.replace(params, **changes))
    try:
        differ = adapter.batch_key(one) != adapter.batch_key(other)
    except RequestError:
        return  # this family knows no such noise scheduler
    is_distilled = "negative_prompt" in changes and not adapter._pipeline("text2image").reads_negative(other.params)
    assert differ is not is_distilled


def test_what_a_row_has_for_itself_is_not(adapter: WholePipeline) -> None:
    params = SamplingParams(height=16, width=16, seed=0)
    one = DiffusionRequest(request_id="a", prompt="a", params=params)
    other = DiffusionRequest(request_id="b", prompt="b", params=dataclasses.replace(params, seed=1, num_outputs=3))
    assert adapter.batch_key(one) == adapter.batch_key(other)

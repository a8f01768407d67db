"""engine.warmup: the request that a model of each kind gets first, and how a failure is told."""

from collections.abc import Sequence
from typing import Any

import pytest

from engine import Capabilities, DiffusionRequest, InvalidRequest, ModelLoadError
from engine.adapter import RowOutcome, StepHook
from engine.batch import Batch
from engine.batch_key import BatchKey, Task
from engine.testing import FakeAdapter
from engine.warmup import warm_up, warmup_request


def can(*tasks: Task, **changes: Any) -> Capabilities:
    known = {"model_class": "P", "device": "cpu", "dtype": "float32", "default_size": (32, 64)}
    return Capabilities(tasks=frozenset(tasks), **{**known, **changes})


@pytest.mark.parametrize(
    ("capabilities", "image", "mask", "frames"),
    [
        (can("text2image"), None, None, None),
        (can("text2image", "image2image", "inpaint"), None, None, None),
        (can("image2image"), "RGB", None, None),
        (can("image2image", "inpaint"), "RGB", None, None),
        (can("inpaint"), "RGB", "L", None),
        (can("text2image", modality="video"), None, None, 9),
        (can("image2image", modality="video"), "RGB", None, 9),
        (can("text2image", modality="audio"), None, None, None),
    ],
)
def test_what_each_kind_of_model_is_given(
    capabilities: Capabilities, image: str | None, mask: str | None, frames: int | None
) -> None:
    request = warmup_request(capabilities)
    given = [one and (one.mode, one.size) for one in (request.image, request.mask_image)]
    assert given == [mode and (mode, (64, 32)) for mode in (image, mask)]
    params = request.params
    assert (params.height, params.width, params.num_frames) == (32, 64, frames)
    assert (params.num_inference_steps, params.num_outputs, params.duration_s) == (2, 1, None)


class Picky(FakeAdapter):
    """Its own strength, as that of some image-to-image pipelines, leaves none of two steps."""

    def batch_key(self, request: DiffusionRequest) -> BatchKey:
        if request.image is not None and request.params.strength is None:
            raise InvalidRequest("strength 0.3 of 2 steps leaves no step to run")
        return super().batch_key(request)


class Silent(FakeAdapter):
    """Gives nothing."""

    def run(self, batch: Batch, on_step: StepHook) -> Sequence[RowOutcome]:
        return ()


def test_a_model_whose_own_strength_leaves_no_step_is_warmed_up_all_the_same() -> None:
    adapter = Picky()
    warm_up(adapter, can("image2image"))
    assert adapter.calls[0].steps == [1, 2]


def test_a_request_that_the_model_refuses_is_a_load_error() -> None:
    class Refuses(FakeAdapter):
        def batch_key(self, request: DiffusionRequest) -> BatchKey:
            raise InvalidRequest("no such size")

    with pytest.raises(ModelLoadError, match="P failed its warm-up: no such size"):
        warm_up(Refuses(), can("text2image"))


def test_no_output_is_a_load_error() -> None:
    with pytest.raises(ModelLoadError, match="failed its warm-up"):
        warm_up(Silent(), can("text2image"))

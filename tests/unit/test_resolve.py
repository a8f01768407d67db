"""A resolved request leaves nothing open, and what the model cannot do is refused by the field's name."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.errors import InvalidRequest
from tasks.models import BUNDLED, ModelDefaults, ModelLimits, Models, ModelSpec
from tasks.request import GenerationRequest, parse_request
from tasks.resolve import resolve

VIDEO = ModelSpec(
    name="film",
    source="x/y",
    modality="video",
    image_input=False,
    loras={"grain": "x/grain"},
    defaults=ModelDefaults(num_frames=17, fps=8),
    limits=ModelLimits(max_frames=33, max_duration_s=4, max_pixels=2**26),
)
SOUND = ModelSpec(name="sound", source="x/z", modality="audio", defaults=ModelDefaults(duration_s=5))
MODELS = Models((BUNDLED, VIDEO, SOUND))


def resolved(**fields: Any) -> GenerationRequest:
    return resolve(parse_request({"prompt": "x", **fields}), MODELS)


def test_defaults_come_from_the_model() -> None:
    request = resolved()
    assert (request.model, request.height, request.width, request.num_inference_steps) == ("tiny", 96, 96, 20)
    assert (request.guidance_scale, request.output_format, request.num_frames) == (4.0, "png", None)
    film = resolved(model="film", fps=12.0)
    assert (film.num_frames, film.fps, film.output_format) == (17, 12.0, "mp4")
    assert (resolved(model="sound").duration_s, resolved(model="sound").output_format) == (5, "wav")


def test_given_values_stay_even_where_they_are_falsy() -> None:
    request = resolved(guidance_scale=0, negative_prompt="", seed=0)
    assert (request.guidance_scale, request.negative_prompt, request.seed) == (0, "", 0)


def test_seeds_are_drawn_apart_and_fit_into_a_javascript_number() -> None:
    seeds = {resolved().seed for _ in range(50)}
    assert len(seeds) == 50
    assert all(seed is not None and 0 <= seed < 2**53 for seed in seeds)


def test_strength_is_filled_in_with_an_image_alone() -> None:
    assert resolved(image="s3://b/k").strength == 0.8
    assert resolved().strength is None


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("model", {"model": "unheard-of"}),
    ("height", {"height": 97}),
    ("height", {"height": 56}),
    ("width", {"width": 168}),
    ("num_inference_steps", {"num_inference_steps": 101}),
    ("num_outputs", {"height": 160, "width": 160, "num_outputs": 16, "model": "film", "num_frames": 200}),
    ("strength", {"strength": 0.01, "num_inference_steps": 20, "image": "s3://b/k"}),
    ("noise_scheduler", {"noise_scheduler": "heun"}),
    ("loras.0.name", {"loras": [{"name": "grain"}]}),
    ("loras", {"model": "film", "loras": [{"name": f"l{i}"} for i in range(9)]}),
    ("loras.1.name", {"model": "film", "loras": [{"name": "grain"}, {"name": "other"}]}),
    ("output_format", {"output_format": "mp4"}),
    ("output_format", {"output_format": "png", "model": "sound"}),
    ("num_frames", {"num_frames": 2}),
    ("fps", {"fps": 8}),
    ("duration_s", {"duration_s": 1}),
    ("num_frames", {"num_frames": 34, "model": "film", "height": 64, "width": 64}),
    ("duration_s", {"duration_s": 5, "model": "film"}),
    ("image", {"image": "s3://b/k", "model": "film"}),
    ("mask_image", {"image": "s3://b/k", "mask_image": "s3://b/m"}),
]


@pytest.mark.parametrize(("field", "fields"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_the_model_cannot_do_names_its_field(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        resolved(**fields)
    assert caught.value.field == field


@given(st.integers(1, 100))
def test_the_strength_that_a_refusal_proposes_is_accepted(steps: int) -> None:
    with pytest.raises(InvalidRequest, match="use at least") as caught:
        resolved(image="s3://b/k", num_inference_steps=steps, strength=0.5 / steps)
    proposed = float(str(caught.value).rpartition(" ")[2])
    assert resolved(image="s3://b/k", num_inference_steps=steps, strength=proposed).strength == proposed


@given(st.floats(0.011, 0.99))
@example(math.nextafter(1 / 5, 0))  # 1 / strength is rounded to 5, which are too few
def test_who_gave_no_strength_is_told_of_steps(default: float) -> None:
    defaults = BUNDLED.defaults.model_copy(update={"strength": default})
    models = Models((BUNDLED.model_copy(update={"defaults": defaults}),))

    def ask(steps: int) -> GenerationRequest:
        return resolve(parse_request({"prompt": "x", "image": "s3://b/k", "num_inference_steps": steps}), models)

    with pytest.raises(InvalidRequest, match="use at least") as caught:
        ask(1)
    least = int(str(caught.value).rpartition(" ")[2])
    assert caught.value.field == "num_inference_steps"
    assert ask(least).strength == default
    with pytest.raises(InvalidRequest):
        ask(least - 1)


@given(
    st.fixed_dictionaries(
        {"model": st.sampled_from(["tiny", "film", "sound"])},
        optional={"num_outputs": st.integers(1, 2), "seed": st.integers(0, 9), "guidance_scale": st.floats(0, 9)},
    )
)
def test_a_resolved_request_resolves_to_itself(fields: dict[str, Any]) -> None:
    request = resolved(**fields)
    assert resolve(request, MODELS) == request

"""What a producer may ask, and what an operator may set: a bad value names its field."""

import subprocess
import sys
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from PIL import Image

from engine import DiffusionRequest, EngineConfig, SamplingParams
from engine.request import Row


def params(**changes: Any) -> SamplingParams:
    return SamplingParams(**{"height": 64, "width": 64, "seed": 1, **changes})


def request(**changes: Any) -> DiffusionRequest:
    return DiffusionRequest(**{"request_id": "a", "prompt": "x", "params": params(), **changes})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("height", 0),
        ("width", -8),
        ("height", 64.0),
        ("height", True),
        ("num_inference_steps", 0),
        ("num_outputs", 0),
        ("num_outputs", 17),
        ("seed", -1),
        ("seed", 2**63),
        ("guidance_scale", float("nan")),
        ("guidance_scale", -1),
        ("guidance_scale", "4"),
        ("strength", 1.5),
        ("strength", -0.1),
        ("strength", float("inf")),
        ("num_frames", 0),
        ("fps", 0),
        ("duration_s", -1),
        ("preview_every", -1),
        ("negative_prompt", "\ud800"),
        ("negative_prompt", 3),
        ("loras", (("ink", float("nan")),)),
        ("loras", (("ink", "1"),)),
        ("loras", ((3, 1.0),)),
        ("loras", (("ink", 1.0), ("ink", 0.5))),
    ],
)
def test_bad_params_name_the_field(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        params(**{field: value})


def test_the_seed_of_the_last_output_fits_too() -> None:
    params(seed=2**63 - 16, num_outputs=16)
    with pytest.raises(ValueError, match="seed"):
        params(seed=2**63 - 15, num_outputs=16)


def test_output_k_has_seed_plus_k() -> None:
    assert [Row(request(params=params(seed=5, num_outputs=3)), k).seed for k in range(3)] == [5, 6, 7]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("request_id", ""),
        ("prompt", "\udfff"),
        ("prompt", None),
        ("priority", 10),
        ("priority", -1),
        ("deadline_s", 0),
        ("deadline_s", float("nan")),
        ("mask_image", Image.new("L", (8, 8))),
    ],
)
def test_bad_requests_name_the_field(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        request(**{field: value})


@pytest.mark.parametrize("prompt", ["", "🙂", "a\0b", "word " * 5000])
def test_any_unicode_is_a_prompt(prompt: str) -> None:
    assert request(prompt=prompt).prompt == prompt


def test_input_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        params().seed = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", ""),
        ("dtype", "float8"),
        ("offload", "disk"),
        ("mode", "fast"),
        ("max_batch_rows", 0),
        ("look_ahead", 0),
        ("max_passes", 0),
        ("max_waiting", 0),
        ("num_threads", 0),
        ("admission_wait_ms", -1),
        ("ageing_s", 0),
    ],
)
def test_bad_config_names_the_field(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        EngineConfig(**{"model": "fake:", field: value})


def test_importing_the_face_imports_no_torch() -> None:
    code = "import sys, engine; print([m for m in ('torch', 'diffusers', 'numpy', 'transformers') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"

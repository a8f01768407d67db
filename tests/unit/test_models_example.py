"""The models files that ship: every table is one that a worker of this version takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.models import BUNDLED, load_models
from tasks.request import GenerationRequest
from tasks.resolve import resolve
from worker.capacity import engine_config, served

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "models.example.toml"
COMPOSE = ROOT / "deploy/models.toml"
NAMES = ("tiny", "sdxl", "flux-schnell", "flux-dev", "qwen-image", "wan")


def test_it_has_the_models_that_the_readme_names() -> None:
    assert load_models(EXAMPLE).names == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_worker_and_the_engine_take_each(name: str) -> None:
    (spec,) = served(load_models(EXAMPLE), [name])
    assert engine_config(spec).model == spec.source


@pytest.mark.parametrize("name", NAMES)
def test_a_bare_prompt_is_within_the_limits_of_each(name: str) -> None:
    models = load_models(EXAMPLE)
    spec = models.get(name)
    assert spec is not None
    resolve(GenerationRequest(model=name, prompt="a boat"), models)
    pixels = spec.defaults.height * spec.defaults.width * (spec.defaults.num_frames or 1)
    most = min(spec.limits.max_outputs, spec.limits.max_pixels // pixels)
    resolve(GenerationRequest(model=name, prompt="a boat", num_outputs=most), models)
    assert most >= spec.max_batch_rows


@pytest.mark.parametrize("path", [EXAMPLE, COMPOSE])
def test_the_bundled_model_is_described_as_the_code_does(path: Path) -> None:
    assert load_models(path).default == BUNDLED

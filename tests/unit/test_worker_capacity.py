"""What of a model's entry reaches its engine."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.errors import ConfigError
from tasks.models import ModelSpec
from worker.capacity import engine_config


def spec(**changes: Any) -> ModelSpec:
    return ModelSpec(name="m", source="x/y", **changes)


def test_adapters_and_options_arrive() -> None:
    entry: dict[str, Any] = {
        "loras": {"ink": "/loras/ink.safetensors"},
        "max_loras": 3,
        "vae_tiling": True,
        "vae_slicing": True,
        "attention_backend": "native",
        "prompt_cache_mb": 7,
    }
    config = engine_config(spec(**entry))
    assert {name: getattr(config, name) for name in entry} == entry


@pytest.mark.parametrize("changes", [{"compile": True}, {"offload": "model"}])
def test_adapters_with_a_model_that_must_stay_as_it_is_are_refused_at_the_start(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="model m: loras cannot be combined with compile or offload"):
        engine_config(spec(loras={"ink": "x/ink"}, **changes))

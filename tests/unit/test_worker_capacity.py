"""What of a model's entry reaches its engine."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.errors import ConfigError
from tasks.models import ModelSpec
from worker.capacity import engine_config, num_places


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


def test_each_device_of_a_model_takes_a_batch() -> None:
    entry: dict[str, Any] = {"executor": "process", "devices": ("cuda:0", "cuda:1"), "max_batch_rows": 3}
    config = engine_config(spec(**entry), stall_s=90.0)
    assert {name: getattr(config, name) for name in entry} == entry
    assert config.wave_deadline_s < 90.0, "a rank is replaced before the worker counts as hung"
    assert num_places([spec(**entry), spec(max_batch_rows=2)], 5) == 2 * 3 + 2 + 5


def test_devices_that_work_together_take_one_batch() -> None:
    entry: dict[str, Any] = {"parallel": "context", "devices": ("cuda:0", "cuda:1"), "max_batch_rows": 3}
    assert engine_config(spec(**entry)).parallel == "context"
    assert num_places([spec(**entry)], 5) == 3 + 5
    for changes in ({"devices": ()}, {"compile": True}, {"offload": "model"}, {"loras": {"ink": "x/ink"}}):
        with pytest.raises(ConfigError, match="parallel"):
            engine_config(spec(**{**entry, **changes}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"devices": ("cuda:0",)}, 'devices needs executor = "process" or parallel'),
        ({"devices": ("cuda:0",), "executor": "process", "device": "cuda"}, "device and devices exclude each other"),
        ({"devices": ("",), "executor": "process"}, "at least 1 character"),
    ],
)
def test_devices_that_cannot_be_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        spec(**changes)

"""Where a pipeline runs is found out once, and a call knows it without going through all modules again."""

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DiffusionPipeline

from engine import EngineConfig, testing_pipelines
from engine.adapter import Output
from engine.adapters.settled_device import settle_device
from engine.adapters.whole import WholePipeline
from engine.batch import Batch
from engine.request import Row
from tests.contract.families import FAMILIES

pytestmark = pytest.mark.usefixtures("one_thread")


def test_calls_do_not_go_through_the_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(pipeline: Any) -> torch.device:
        asked.append(pipeline)
        return torch.device("cpu")

    monkeypatch.setattr(DiffusionPipeline, "_execution_device", property(counted))
    testing_pipelines.stable_diffusion_xl().save_pretrained(tmp_path)
    adapter = WholePipeline(EngineConfig(model=str(tmp_path), mode="request", num_threads=1, dtype="float32"))
    adapter.load()
    for seed in range(2):
        one = FAMILIES["stable_diffusion_xl"].request(f"r{seed}", seed=seed)
        (outcome,) = adapter.run(Batch(adapter.batch_key(one), (Row(one, 0),)), lambda *_: None)
        assert isinstance(outcome, Output), outcome
    adapter.close()
    assert len(asked) == 1


def test_a_call_leaves_the_pipeline_as_it_was(tmp_path: Path) -> None:
    testing_pipelines.stable_diffusion().save_pretrained(tmp_path)
    adapter = WholePipeline(EngineConfig(model=str(tmp_path), mode="request", num_threads=1, dtype="float32"))
    adapter.load()
    pipeline = adapter._pipeline("text2image").pipeline
    config, state, kind = dict(pipeline.config), dict(vars(pipeline)), type(pipeline)
    one = FAMILIES["stable_diffusion"].request("r", seed=1, guidance_scale=3.0, noise_scheduler="ddim")
    (outcome,) = adapter.run(Batch(adapter.batch_key(one), (Row(one, 0),)), lambda *_: None)
    adapter.close()
    assert isinstance(outcome, Output), outcome
    assert dict(pipeline.config) == config and type(pipeline) is kind
    assert vars(pipeline).keys() == state.keys()
    assert all(value is state[name] for name, value in vars(pipeline).items())


def test_the_class_looks_as_before() -> None:
    pipeline = testing_pipelines.stable_diffusion()
    kind = type(pipeline)
    settle_device(pipeline, torch.device("meta"))
    assert pipeline._execution_device == torch.device("meta")
    assert isinstance(pipeline, kind)
    assert (type(pipeline).__name__, type(pipeline).__module__) == (kind.__name__, kind.__module__)
    assert kind._execution_device is not type(pipeline)._execution_device, "other pipelines of the class ask themselves"


def test_a_pipeline_with_a_way_of_its_own_keeps_it() -> None:
    class Elsewhere(type(testing_pipelines.stable_diffusion())):  # type: ignore[misc]
        @property
        def _execution_device(self) -> torch.device:
            return torch.device("cpu")

    pipeline = testing_pipelines.stable_diffusion()
    pipeline.__class__ = Elsewhere
    settle_device(pipeline, torch.device("meta"))
    assert type(pipeline) is Elsewhere and pipeline._execution_device == torch.device("cpu")

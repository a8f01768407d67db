"""A LoRA's file is read beside the device thread: who needs no LoRA, or has one, does not wait for another's file."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from engine import Completed, DiffusionEngine, DiffusionRequest, EngineConfig, Failed, SamplingParams, testing_pipelines
from engine.adapters import lora_reader
from engine.adapters.lora_files import lora_file
from engine.adapters.lora_reader import LoraReader
from tests.contract.loras import write_lora

pytestmark = pytest.mark.usefixtures("one_thread")

SOON_S = 60.0


def request(request_id: str, *names: str) -> DiffusionRequest:
    params = SamplingParams(height=16, width=16, num_inference_steps=2, seed=1, loras=tuple((n, 1.0) for n in names))
    return DiffusionRequest(request_id=request_id, prompt="a boat", params=params)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    folder = tmp_path_factory.mktemp("lora")
    pipeline = testing_pipelines.stable_diffusion()
    pipeline.save_pretrained(folder / "model")
    file = write_lora(pipeline, ("unet",), folder / "ink.safetensors", seed=1)
    #: with what diffusers keeps beside the weights: other scales than without
    config = {"r": 2, "lora_alpha": 6, "target_modules": ["to_q", "to_k", "to_v", "to_out.0"]}
    noted = folder / "noted.safetensors"
    text = "{" + ", ".join(f'"unet.{k}": {v}'.replace("'", '"') for k, v in config.items()) + "}"
    save_file(load_file(file), noted, metadata={"format": "pt", "lora_adapter_metadata": text})
    loras = {"ink": str(file), "noted": str(noted), "gone": str(folder / "gone.safetensors")}
    return EngineConfig(model=str(folder / "model"), num_threads=1, warmup=False, mode="step", loras=loras)


@pytest.fixture(scope="module")
def engine(config: EngineConfig) -> Iterator[DiffusionEngine]:
    with DiffusionEngine.make_engine(config) as made:
        yield made


def pixels(end: object) -> Any:
    assert isinstance(end, Completed), end
    return end.media[0].pixels


def test_others_are_served_while_a_file_is_read(engine: DiffusionEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    may_read, readers = threading.Event(), []

    def slow(*args: Any, **kwargs: Any) -> Path:
        readers.append(threading.current_thread().name)
        assert may_read.wait(SOON_S)
        return lora_file(*args, **kwargs)

    monkeypatch.setattr(lora_reader, "lora_file", slow)
    inked = engine.submit(request("inked", "ink"))
    plain = pixels(engine.submit(request("plain")).result(SOON_S))
    assert not inked.done
    may_read.set()
    assert not np.array_equal(pixels(inked.result(SOON_S)), plain), "it shows"
    assert [name.startswith("safelight-lora") for name in readers] == [True]
    engine.submit(request("again", "ink")).result(SOON_S)
    assert len(readers) == 1, "it is there"


def test_an_abort_while_its_file_is_read(engine: DiffusionEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    may_read = threading.Event()

    def slow(*args: Any, **kwargs: Any) -> Path:
        assert may_read.wait(SOON_S)
        return lora_file(*args, **kwargs)

    monkeypatch.setattr(lora_reader, "lora_file", slow)
    stream = engine.submit(request("a", "noted"))
    engine.abort("a")
    stream.result(SOON_S)
    may_read.set()
    pixels(engine.submit(request("a", "noted")).result(SOON_S))


def test_a_file_that_is_not_there_fails_its_request_each_time(engine: DiffusionEngine) -> None:
    for number in range(2):
        end = engine.submit(request(f"g{number}", "gone")).result(SOON_S)
        assert isinstance(end, Failed)
        assert (end.error_type, "there is no file" in end.message) == ("model_error", True)


def test_what_is_read_ahead_is_bounded(config: EngineConfig) -> None:
    reader = LoraReader(None, EngineConfig(model="x", loras=config.loras, max_loras=1), lambda _: None)
    for _ in range(2):
        for name in config.loras:
            assert reader.begin(name).exception(SOON_S) is not None  # there is no pipeline
    assert len(reader._reads) == 1
    reader.close()

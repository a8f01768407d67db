"""Loading: the bundled model serves, and what cannot be loaded says why and what to try."""

import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import (
    Completed,
    DiffusionEngine,
    DiffusionRequest,
    EngineConfig,
    ModelLoadError,
    SamplingParams,
    testing_pipelines,
)
from engine.adapters.loading import load_pipeline, resolve_device, resolve_dtype
from engine.adapters.profiler import DIRECTORY_VARIABLE
from engine.adapters.stepwise import StepPipeline


def refused(**changes: Any) -> str:
    with pytest.raises(ModelLoadError) as caught:
        DiffusionEngine.make_engine(EngineConfig(**{"model": "bundled:tiny", "num_threads": 1, **changes}))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"cannot load {changes.get('model', 'bundled:tiny')}: ")
    assert " Try: " in message
    return message


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert f"there is no folder {tmp_path / 'nothing'}" in refused(model=str(tmp_path / "nothing"))


def test_a_bundled_model_that_is_not_there() -> None:
    assert "there is no folder" in refused(model="bundled:huge")


def test_an_empty_folder(tmp_path: Path) -> None:
    assert "model_index.json" in refused(model=str(tmp_path))


def test_a_hub_model_without_the_hub() -> None:
    assert "local_files_only=False" in refused(model="nobody/nothing", local_files_only=True)


@pytest.mark.parametrize("name", ["NoSuchPipeline", "no.such.Pipeline"])
def test_a_class_that_is_not_there(name: str) -> None:
    assert f"pipeline_class {name} cannot be found" in refused(pipeline_class=name)


def test_a_class_that_is_no_pipeline() -> None:
    assert "pipeline_class builtins.dict is no diffusers pipeline" in refused(pipeline_class="builtins.dict")


def test_a_device_that_is_not_there() -> None:
    assert "device" in refused(device="cuda:99").lower()


def test_pickled_weights_are_refused_until_allowed(tmp_path: Path) -> None:
    pipeline = testing_pipelines.stable_diffusion()
    pipeline.save_pretrained(tmp_path)
    (tmp_path / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    torch.save(pipeline.unet.state_dict(), tmp_path / "unet" / "diffusion_pytorch_model.bin")
    assert "allow_pickle=True" in refused(model=str(tmp_path))
    config = EngineConfig(model=str(tmp_path), allow_pickle=True, warmup=False, num_threads=1)
    DiffusionEngine.make_engine(config).close()


def test_code_that_comes_with_weights_is_never_run(tmp_path: Path) -> None:
    """A folder may name classes of its own, of the pipeline, of a part or by transformers' `auto_map`."""
    source = tmp_path / "source"
    testing_pipelines.stable_diffusion().save_pretrained(source)
    marker = tmp_path / "ran"
    code = f"open({str(marker)!r}, 'w')\nclass Own: pass\n"
    for place, entry in (
        ("", ("_class_name", ["own", "Own"])),
        ("unet", ("unet", ["own", "Own"])),
        ("text_encoder", None),
    ):
        folder = tmp_path / f"model-{place}"
        shutil.copytree(source, folder)
        (folder / place / "own.py").write_text(code)
        index = folder / ("model_index.json" if entry else "text_encoder/config.json")
        key, value = entry or ("auto_map", {"AutoModel": "own.Own", "AutoConfig": "own.Own"})
        index.write_text(json.dumps(json.loads(index.read_text()) | {key: value}))
        config = EngineConfig(model=str(folder), device="cpu", warmup=False, num_threads=1)
        if entry:
            with pytest.raises(ModelLoadError, match="custom code"):
                load_pipeline(config)
        else:
            load_pipeline(config)  # the library's own class is taken
    assert not marker.exists()


@pytest.mark.parametrize(("name", "dtype"), [("auto", torch.float32), ("float16", torch.float16)])
def test_dtypes_on_a_cpu(name: str, dtype: torch.dtype) -> None:
    assert resolve_dtype(name, torch.device("cpu")) is dtype


def test_auto_finds_a_device_that_works() -> None:
    torch.ones(1, device=resolve_device("auto"))


def test_the_bundled_model_serves_from_its_own_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    config = EngineConfig(model="bundled:tiny", pipeline_class="StableDiffusionPipeline", num_threads=1)
    with DiffusionEngine.make_engine(config) as engine:
        can = engine.capabilities
        assert (can.model_class, can.dtype, can.default_size) == ("StableDiffusionPipeline", "float32", (96, 96))
        assert can.tasks == {"text2image", "image2image"}, "inpainting needs a UNet of 4 or 9 channels"
        engine.profile(True, "trace")
        params = SamplingParams(height=96, width=96, seed=1, num_inference_steps=2)
        done = engine.submit(DiffusionRequest(request_id="a", prompt="a red house", params=params)).result(60)
        assert isinstance(done, Completed)
        assert done.media[0].pixels.shape == (96, 96, 3)
        assert np.ptp(done.media[0].pixels) > 10
        path = engine.profile(False)
        assert Path(str(path)).stat().st_size > 1000
        with pytest.raises(RuntimeError, match="no profile is running"):
            engine.profile(False)


def test_a_closed_engine_holds_no_weights_whoever_holds_the_engine(tmp_path: Path) -> None:
    testing_pipelines.stable_diffusion().save_pretrained(tmp_path)
    adapter = StepPipeline(EngineConfig(model=str(tmp_path), num_threads=1))
    engine = DiffusionEngine.make_engine(EngineConfig(model=str(tmp_path), warmup=False), adapter=adapter)
    models = [part for part in adapter._loaded.components.values() if isinstance(part, torch.nn.Module)]
    sizes = {id(one): one.nbytes for model in models for one in (*model.parameters(), *model.buffers())}
    assert engine.capabilities.memory_bytes == sum(sizes.values())
    weak = [weakref.ref(model) for model in models]
    del models
    engine.close()
    assert [one() for one in weak] == [None] * len(weak)

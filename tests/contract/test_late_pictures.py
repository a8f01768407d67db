"""Pictures leave the device beside its thread: the bits are those of the pipeline's own arrays, and nobody else's."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from engine import Completed, DiffusionEngine, EngineConfig, testing_pipelines
from engine.adapter import Output
from engine.adapters import landing, pipeline_call
from engine.adapters.copy_lane import CopyLane, HostCopy
from engine.adapters.late_pictures import let_pictures_stay
from engine.adapters.whole import WholePipeline
from engine.batch import Batch
from engine.request import Row
from tests.contract.families import FAMILIES

pytestmark = pytest.mark.usefixtures("one_thread")

SOON_S = 60.0


def made(folder: Path, family: str, dtype: str) -> Sequence[np.ndarray[Any, Any]]:
    config = EngineConfig(model=str(folder), mode="request", num_threads=1, dtype=dtype)  # type: ignore[arg-type]
    adapter = WholePipeline(config)
    adapter.load()
    wanted = [FAMILIES[family].request(f"r{seed}", seed=seed) for seed in range(2)]
    batch = Batch(adapter.batch_key(wanted[0]), tuple(Row(one, 0) for one in wanted))
    outcomes = adapter.run(batch, lambda *_: None)
    adapter.close()
    assert all(isinstance(one, Output) for one in outcomes), outcomes
    return [one.media.pixels for one in outcomes if isinstance(one, Output) and one.media.pixels is not None]


@pytest.mark.parametrize(
    ("family", "dtype"), [("stable_diffusion", "float32"), ("stable_diffusion", "bfloat16"), ("ltx", "float32")]
)
def test_every_bit_is_as_in_the_pipelines_own_arrays(
    family: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    getattr(testing_pipelines, family)().save_pretrained(tmp_path)
    convert, converted = landing._as_diffusers_does, []

    def watched(pictures: torch.Tensor) -> Any:
        converted.append(pictures.dtype)
        return convert(pictures)

    monkeypatch.setattr(landing, "_as_diffusers_does", watched)
    late = made(tmp_path, family, dtype)
    assert converted == [getattr(torch, dtype)], "it was left to us"
    monkeypatch.setattr(pipeline_call, "let_pictures_stay", lambda view: None)
    own = made(tmp_path, family, dtype)
    assert len(converted) == 1
    assert len(late) == len(own) == 2
    assert all(np.array_equal(one, other) for one, other in zip(late, own, strict=True))


def test_an_engine_converts_beside_its_device_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testing_pipelines.stable_diffusion().save_pretrained(tmp_path)
    convert, threads = landing._as_diffusers_does, []

    def watched(pictures: torch.Tensor) -> Any:
        threads.append(threading.current_thread().name)
        return convert(pictures)

    monkeypatch.setattr(landing, "_as_diffusers_does", watched)
    config = EngineConfig(model=str(tmp_path), mode="request", num_threads=1, warmup=False)
    with DiffusionEngine.make_engine(config) as engine:
        end = engine.submit(FAMILIES["stable_diffusion"].request("a")).result(SOON_S)
    assert isinstance(end, Completed)
    assert threads == ["safelight-finisher"]


def test_a_pipeline_of_somebody_elses_keeps_its_arrays() -> None:
    plain = testing_pipelines.stable_diffusion()
    own: Any = type("Own", (type(plain),), {"__module__": "elsewhere"})(**plain.components)
    before = own.image_processor
    let_pictures_stay(own)
    assert own.image_processor is before
    let_pictures_stay(plain)
    assert plain.image_processor is not before


def test_whoever_waits_for_a_copy_waits_for_the_device() -> None:
    copied = threading.Event()
    wait: Callable[[], object] = lambda: copied.wait(SOON_S)  # noqa: E731
    copy = HostCopy([torch.ones(2)], SimpleNamespace(synchronize=wait))  # type: ignore[arg-type]
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.extend(copy.wait()))
    thread.start()
    assert not got
    copied.set()
    thread.join(SOON_S)
    assert torch.equal(got[0], torch.ones(2))
    (there,) = CopyLane(torch.device("cpu")).send([torch.zeros(3)]).wait()
    assert torch.equal(there, torch.zeros(3))

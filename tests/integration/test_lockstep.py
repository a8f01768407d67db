"""One request on two devices at a time, two processes on the CPU: the picture is that of one, and they end together."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import numpy as np
import pytest
import torch

from engine import Completed, DiffusionEngine, DiffusionRequest, EngineConfig, EngineDead, Failed
from engine.adapters.lockstep.cargo import bits, stow, unstow
from engine.adapters.lockstep.spread import spread
from engine.config import Parallel
from engine.testing_pipelines import stable_diffusion
from engine.testing_pipelines.flow_matching import flux
from tests.integration.ranks import is_gone, pixels, request, soon

#: Importing torch and diffusers, on a busy machine, in a process of its own.
SLOW_S = 240.0
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = tmp_path_factory.mktemp("flux")
    flux().save_pretrained(home)
    return str(home)


def test_arguments_arrive_as_they_were() -> None:
    picture = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4).t()
    value = ((picture, None, [1.5, "x"]), {"mask": torch.tensor([True, False]), "t": torch.tensor(7), "k": {"s": (2,)}})
    tensors: list[torch.Tensor] = []
    plan = json.loads(json.dumps(stow(value, tensors)))
    sent = iter([bits(tensor.contiguous()).clone() for tensor in tensors])

    def receive(dtype: torch.dtype, shape: list[int], on_cpu: bool) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=dtype)
        bits(tensor).copy_(next(sent))
        assert on_cpu
        return tensor

    (back, none, rest), named = unstow(plan, receive)
    assert back.equal(picture) and none is None and rest == [1.5, "x"]
    assert named["mask"].tolist() == [True, False] and named["t"].item() == 7 and named["k"] == {"s": (2,)}
    with pytest.raises(TypeError, match="given a object cannot be spread"):
        stow({"k": object()}, [])


def config(model: str, **changes: Any) -> EngineConfig:
    settled = {"model": model, "mode": "step", "warmup": False, "dtype": "float32", "num_threads": 1}
    return EngineConfig(**{**settled, **changes})


def made(engine: DiffusionEngine, wanted: list[DiffusionRequest]) -> list[np.ndarray]:
    streams = [engine.submit(one) for one in wanted]
    return [pixels(stream.result(SLOW_S))[0] for stream in streams]


@pytest.fixture(scope="module")
def expected(model: str) -> list[np.ndarray]:
    with DiffusionEngine.make_engine(config(model, device="cpu")) as alone:
        return made(alone, wanted())


def wanted() -> list[DiffusionRequest]:
    return [request(f"r{i}", height=32, width=32 + 16 * i, num_inference_steps=3, seed=i) for i in range(2)]


@pytest.mark.parametrize(("parallel", "most_apart"), [("context", 1), ("shard", 0)])
def test_the_picture_is_that_of_one_device(
    model: str, expected: list[np.ndarray], parallel: Parallel, most_apart: int
) -> None:
    with DiffusionEngine.make_engine(config(model, parallel=parallel, devices=("cpu", "cpu"))) as engine:
        found = made(engine, wanted())
        for one, other in zip(expected, found, strict=True):
            assert np.abs(one.astype(int) - other.astype(int)).max() <= most_apart
        assert isinstance(engine.submit(request("again", height=32, width=32)).result(SLOW_S), Completed)
        (follower,) = engine._adapter._company._followers  # type: ignore[union-attr]
        os.kill(follower.process.pid, signal.SIGKILL)
        soon(lambda: follower.process.poll() is not None, "it has ended")
        end = engine.submit(request("late", height=32, width=32)).result(SLOW_S)
        assert isinstance(end, Failed) and end.retryable and "the company of 2 devices is broken" in end.message
        with pytest.raises(EngineDead):
            engine.submit(request("later", height=32, width=32))
    assert is_gone(follower.process.pid)


def test_layers_that_are_divided_make_the_same_picture(model: str, expected: list[np.ndarray]) -> None:
    """Apart from the others, as each operation of a divided layer takes milliseconds here."""
    with DiffusionEngine.make_engine(config(model, parallel="tensor", devices=("cpu", "cpu"))) as engine:
        (found,) = made(engine, wanted()[:1])
        weight = engine._adapter._loaded.transformer.transformer_blocks[0].attn.to_q.weight  # type: ignore[union-attr]
        assert weight.to_local().shape[0] * 2 == weight.shape[0], "each has half of the heads"
    assert np.abs(found.astype(int) - expected[0].astype(int)).max() <= 1


def test_a_model_without_a_plan_for_it_says_so() -> None:
    with pytest.raises(ValueError, match=r"`_tp_plan` must be set .* 'UNet2DConditionModel' does not define one"):
        spread(stable_diffusion().unet, "tensor", torch.device("cpu"), 2)


@pytest.mark.parametrize("tensor", [torch.arange(4.0)[::2][:1], torch.empty(0), torch.arange(6).reshape(2, 3)])
def test_every_contiguous_tensor_has_its_bytes(tensor: torch.Tensor) -> None:
    """Also a lone element with a stride of its own, as a timestep is that was cut out of all of them."""
    assert tensor.is_contiguous()
    assert bytes(bits(tensor).tolist()) == tensor.numpy().tobytes()

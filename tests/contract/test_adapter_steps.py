"""Step mode on random pipelines: rows that share forwards, steps apart, are what plain diffusers makes of them."""

import gc
from collections.abc import Callable

import numpy as np
import pytest
import torch

from engine import (
    EngineConfig,
)
from engine.adapters.stepwise import StepPipeline
from engine.batch import Batch
from engine.request import Row
from tests.contract.random_models import PROMPTS, SOON_S, assert_close, picture
from tests.contract.step_models import STEPS, Model, mask, request

pytestmark = pytest.mark.usefixtures("one_thread")


class TestEveryFamily:
    def test_it_says_why_it_is_served_step_by_step(self, model: Model) -> None:
        assert model.engine.capabilities.mode == "step"
        assert "merge" in model.engine.capabilities.mode_reason

    def test_one_request_is_plain_diffusers_to_the_last_bit(self, model: Model) -> None:
        wanted = request("a", PROMPTS[1], seed=11, guidance_scale=5.0, negative_prompt="fog")
        assert np.array_equal(model.pixels(wanted)[0], model.expected(wanted))

    def test_rows_of_different_steps_guidance_and_prompts_share_forwards(self, model: Model) -> None:
        wanted = [
            request("a", PROMPTS[0], num_inference_steps=3, seed=1, guidance_scale=3.0),
            request("b", PROMPTS[1], num_inference_steps=6, seed=2, guidance_scale=7.5),
            request("c", PROMPTS[2], num_inference_steps=4, seed=3, guidance_scale=5.0, negative_prompt="a cloud"),
            request("d", PROMPTS[3], num_inference_steps=5, seed=4, guidance_scale=2.0),
        ]
        results = model.pixels(*wanted)
        assert len(model.denoised) <= 9, "18 row steps, in no more forwards than the longest needs and a few to fall in"
        for one, result in zip(wanted, results, strict=True):
            assert_close(result, model.expected(one))

    def test_five_identical_jobs_together_are_the_one_alone(self, model: Model) -> None:
        """sglang 28502: they degrade each other, and nothing says so. The floor is 60 dB."""
        wanted = [request(f"r{i}", PROMPTS[1], seed=9, guidance_scale=5.0) for i in range(5)]
        results = model.pixels(*wanted)
        assert max(model.denoised) == 5
        alone = model.expected(wanted[0]).astype(float)
        noise = max(float(np.mean((result - alone) ** 2)) for result in results)
        assert noise <= 255**2 / 10 ** (60 / 10)

    def test_exact_rows_are_plain_calls_to_the_last_bit_in_any_company(self, model: Model) -> None:
        wanted = [request(f"e{i}", prompt, seed=i, exact=True) for i, prompt in enumerate(PROMPTS)]
        results = model.pixels(*wanted, request("other", seed=9))
        for one, result in zip(wanted, results, strict=False):
            assert np.array_equal(result, model.expected(one))

    def test_two_sizes_are_served_in_turn(self, model: Model) -> None:
        wanted = [request("a"), request("b", height=24), request("c", seed=3), request("d", height=24, seed=4)]
        for one, result in zip(wanted, model.pixels(*wanted), strict=True):
            assert_close(result, model.expected(one))
        assert max(model.denoised) == 2

    def test_the_same_area_turned_by_ninety_degrees_is_another_size(self, model: Model) -> None:
        wanted = [request("a", height=16, width=24), request("b", height=24, width=16)]
        for one, result in zip(wanted, model.pixels(*wanted), strict=True):
            assert_close(result, model.expected(one))
        assert max(model.denoised) == 1

    def test_the_modules_are_left_as_they_were(self, model: Model) -> None:
        adapter = StepPipeline(EngineConfig(model=model.folder, num_threads=1, mode="step", warmup=False))
        adapter.load()
        modules = [site.module for site in adapter._rendezvous.sites] if adapter._rendezvous else []
        assert modules
        adapter.close()
        assert not [name for module in modules for name in ("forward", "encode", "decode") if name in vars(module)]


class TestTasks:
    def test_text_image_and_mask_share_one_denoiser(self, sd: Model) -> None:
        wanted = [
            request("a", seed=1, num_inference_steps=10),
            request("b", PROMPTS[1], image=picture(1), strength=0.6, seed=2, num_inference_steps=10),
            request("c", PROMPTS[3], image=picture(2), mask_image=mask(), strength=0.9, seed=3, num_inference_steps=9),
        ]
        for one, result in zip(wanted, sd.pixels(*wanted), strict=True):
            assert_close(result, sd.expected(one))
        assert 3 in sd.denoised

    @pytest.mark.parametrize("family", ["stable_diffusion_3", "flux"])
    def test_image_to_image_of_mixed_strength(self, models: Callable[[str], Model], family: str) -> None:
        model = models(family)
        wanted = [request(f"r{i}", PROMPTS[i], image=picture(i), strength=0.5 + i / 5, seed=i) for i in range(3)]
        for one, result in zip(wanted, model.pixels(*wanted), strict=True):
            assert_close(result, model.expected(one))


class TestNoiseSchedulers:
    @pytest.mark.parametrize("names", [("ddim", "euler"), ("dpmpp_2m", "unipc"), ("euler_a", "pndm"), ("pndm", "heun")])
    def test_different_ones_share_forwards(self, sd: Model, names: tuple[str, str]) -> None:
        wanted = [request(name, PROMPTS[i], seed=i, noise_scheduler=name) for i, name in enumerate(names)]
        for one, result in zip(wanted, sd.pixels(*wanted), strict=True):
            assert_close(result, sd.expected(one))
        assert 2 in sd.denoised


def test_a_row_call_is_held_at_every_model_call(sd: Model) -> None:
    """Encoder, each step, decoder: in between the device is free for others."""
    wanted = request("a")
    stages: list[str] = []

    def through() -> None:
        call = sd.adapter.open(Batch(sd.adapter.batch_key(wanted), (Row(wanted, 0),)), lambda *_: None, alone=False)
        while call.outcome is None:
            stages.append(call.stage)
            sd.adapter.advance([call])

    sd.engine._call(through, SOON_S, "through")
    assert stages == ["encoding"] * 2 + ["denoising"] * STEPS + ["decoding"]


@pytest.mark.parametrize("ends", ["done", "aborted"])
def test_a_row_that_has_ended_leaves_no_tensor_behind(sd: Model, ends: str) -> None:
    """Without the garbage collector, for which the memory of a device cannot wait."""
    wanted = request("a")

    def count() -> int:
        before = {id(found) for found in gc.get_objects() if isinstance(found, torch.Tensor)}
        call = sd.adapter.open(Batch(sd.adapter.batch_key(wanted), (Row(wanted, 0),)), lambda *_: None, alone=False)
        for _ in range(4):
            sd.adapter.advance([call])
        if ends == "aborted":
            call.abort()
        while ends == "done" and call.outcome is None:
            sd.adapter.advance([call])
        del call
        after = [found for found in gc.get_objects() if isinstance(found, torch.Tensor)]
        return len([found for found in after if id(found) not in before])

    gc.collect()
    gc.disable()
    try:
        sd.engine._call(count, SOON_S, "warm")  # what is kept once (tables of a first call) is not a leak
        assert sd.engine._call(count, SOON_S, "count") == 0
    finally:
        gc.enable()

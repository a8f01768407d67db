"""Step mode: rows that leave or fail, and pipelines that cannot be served so."""

import functools
from collections.abc import Callable
from typing import Any

import diffusers
import numpy as np
import pytest
import torch

from engine import (
    Aborted,
    Completed,
    EngineConfig,
    Failed,
    ModelLoadError,
    testing_pipelines,
)
from engine.adapters.stepwise import StepPipeline
from tests.contract.random_models import PROMPTS, SOON_S, assert_close
from tests.contract.step_models import STEPS, Model, pixels, request

pytestmark = pytest.mark.usefixtures("one_thread")


class TestAbort:
    @pytest.mark.parametrize("after", range(STEPS + 1))
    def test_after_each_step_the_mates_do_not_notice(self, sd: Model, after: int) -> None:
        """The group has the same size with an aborted mate as with one that goes on, so that bits can be compared."""
        wanted = [request("a", seed=1), request("b", PROMPTS[1], seed=2)]
        sd.engine.pause()
        streams = [sd.engine.submit(one) for one in (*wanted, request("x", seed=3))]
        sd.engine.resume()
        for event in streams[2]:
            if getattr(event, "step", -1) >= after:
                break  # leaving the stream aborts
        for one, stream in zip(wanted, streams, strict=False):
            assert_close(pixels(stream.result(SOON_S)), sd.expected(one))
        assert isinstance(streams[2].result(SOON_S), Aborted | Completed)

    def test_a_held_call_ends_and_leaves_the_next_one_clean(self, sd: Model) -> None:
        wanted = request("a", seed=5)
        before = sd.pixels(wanted)[0]
        stream = sd.engine.submit(request("x", num_inference_steps=100))
        stream.get(SOON_S)
        stream.close()
        assert isinstance(stream.result(SOON_S), Aborted)
        assert np.array_equal(sd.pixels(wanted)[0], before)


class TestFaults:
    def test_a_forward_that_fails_for_one_is_repeated_for_each(
        self, sd: Model, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Latents of infinity stand for whatever a model chokes on."""
        unet = next(site for site in sd.adapter._rendezvous.sites if site.name == "unet.forward")  # type: ignore[union-attr]
        original = unet.original

        def picky(sample: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if (kwargs["encoder_hidden_states"].abs().sum(dim=(1, 2)) == 0).any():
                raise RuntimeError("cannot work with that")
            return original(sample, *args, **kwargs)

        monkeypatch.setattr(unet, "original", picky)
        encoder = next(site for site in sd.adapter._rendezvous.sites if site.name == "text_encoder.forward")  # type: ignore[union-attr]
        encode, poisoned = encoder.original, sd.adapter._loaded.tokenizer("poison").input_ids[1]

        def zeros_for_poison(input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            output = encode(input_ids, *args, **kwargs)
            output[0][(input_ids == poisoned).any(dim=1)] = 0
            return output

        monkeypatch.setattr(encoder, "original", zeros_for_poison)
        wanted = [request("a", seed=1), request("x", "poison", seed=2), request("b", PROMPTS[1], seed=3)]
        a, x, b = sd.run(*wanted)
        assert isinstance(x, Failed)
        assert "cannot work with that" in x.message
        monkeypatch.undo()
        assert_close(pixels(a), sd.expected(wanted[0]))
        assert_close(pixels(b), sd.expected(wanted[2]))
        assert len(sd.forwards) < 30

    def test_out_of_memory_halves_the_group(self, sd: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        unet = next(site for site in sd.adapter._rendezvous.sites if site.name == "unet.forward")  # type: ignore[union-attr]
        original = unet.original

        def small(sample: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if sample.shape[0] > 4:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
            return original(sample, *args, **kwargs)

        monkeypatch.setattr(unet, "original", small)
        wanted = [request(f"r{i}", PROMPTS[i], seed=i, guidance_scale=6.5) for i in range(4)]
        for one, result in zip(wanted, sd.pixels(*wanted), strict=True):
            assert_close(result, sd.expected(one))

    def test_bad_arguments_fail_in_the_request_that_brought_them(self, sd: Model) -> None:
        good, bad = sd.run(request("a"), request("b", noise_scheduler="nonsense"))
        pixels(good)
        assert isinstance(bad, Failed)
        assert bad.error_type == "invalid_request"


class TestRefusals:
    """What is known to be wrong step by step is said when the model loads."""

    def load(self, folder: str, mode: str, monkeypatch: pytest.MonkeyPatch, edit: Callable[[Any], None]) -> Any:
        real = diffusers.DiffusionPipeline.from_pretrained.__func__  # type: ignore[attr-defined]

        def edited(cls: Any, *args: Any, **kwargs: Any) -> Any:
            pipeline = real(cls, *args, **kwargs)
            edit(pipeline)
            return pipeline

        monkeypatch.setattr(diffusers.DiffusionPipeline, "from_pretrained", classmethod(edited))
        adapter = StepPipeline(EngineConfig(model=folder, num_threads=1, mode=mode))  # type: ignore[arg-type]
        try:
            return adapter.load()
        finally:
            adapter.close()

    def test_a_pipeline_that_changes_its_denoiser(self, sd: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        class StableDiffusionPAGPipeline(diffusers.StableDiffusionPipeline):  # type: ignore[misc]
            pass

        def to_pag(pipeline: Any) -> None:
            pipeline.__class__ = StableDiffusionPAGPipeline

        with pytest.raises(ModelLoadError, match=r"changes its denoiser while it runs.*mode='request'"):
            self.load(sd.folder, "step", monkeypatch, to_pag)

    def test_auto_takes_request_mode_and_says_why(self, sd: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        def stochastic(pipeline: Any) -> None:
            pipeline.scheduler.register_to_config(stochastic_sampling=True)

        capabilities = self.load(sd.folder, "auto", monkeypatch, stochastic)
        assert capabilities.mode == "request"
        assert "the process's own generator" in capabilities.mode_reason

    def test_offload(self, sd: Model) -> None:
        adapter = StepPipeline(EngineConfig(model=sd.folder, mode="auto", offload="model"))
        assert "offload" in str(_why_not(adapter))

    def test_a_model_whose_rows_feel_each_other_is_found_out(self, sd: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its forward mixes its rows, which no signature shows: only the self-check can."""

        def mix(pipeline: Any) -> None:
            forward = pipeline.unet.forward

            @functools.wraps(forward)
            def mixing(sample: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
                return forward(sample + 0.5 * sample.mean(dim=0, keepdim=True), *args, **kwargs)

            pipeline.unet.forward = mixing

        capabilities = self.load(sd.folder, "auto", monkeypatch, mix)
        assert capabilities.mode == "request"
        assert "differ" in capabilities.mode_reason
        capabilities = self.load(sd.folder, "step", monkeypatch, mix)
        assert capabilities.mode == "step"
        assert "differ" in capabilities.mode_reason


def _why_not(adapter: StepPipeline) -> str | None:
    from engine.adapters.step_safety import why_not

    pipeline = testing_pipelines.stable_diffusion()
    return why_not(pipeline, adapter._config, accepts_generator=True)

"""Step mode on random pipelines: rows that share forwards, steps apart, are what plain diffusers makes of them."""

import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from engine import (
    Aborted,
    Completed,
    DiffusionEngine,
    DiffusionRequest,
    EngineConfig,
    Event,
    Failed,
    ModelLoadError,
    SamplingParams,
    testing_pipelines,
)
from engine.adapter import RowCall
from engine.adapters.stepwise import StepPipeline
from engine.adapters.whole import WholePipeline
from engine.batch import Batch
from engine.request import Row

pytestmark = pytest.mark.usefixtures("one_thread")

Pixels = NDArray[np.uint8]
FAMILIES = ("stable_diffusion", "stable_diffusion_3", "flux")
PROMPTS = ("a red house", "two boats at night", "", "a small blue star above a very large green moon")
SIZE = 16
STEPS = 4
SOON_S = 60.0
REQUEST_FIELDS = {"image", "mask_image", "priority", "solo", "deadline_s"}


def request(request_id: str, prompt: str = PROMPTS[0], **changes: Any) -> DiffusionRequest:
    top = {name: value for name, value in changes.items() if name in REQUEST_FIELDS}
    rest = {name: value for name, value in changes.items() if name not in REQUEST_FIELDS}
    params = SamplingParams(**{"height": SIZE, "width": SIZE, "num_inference_steps": STEPS, "seed": 0, **rest})
    return DiffusionRequest(request_id=request_id, prompt=prompt, params=params, **top)


def picture(seed: int = 0, size: tuple[int, int] = (SIZE, SIZE)) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


def mask() -> Image.Image:
    pixels = np.zeros((SIZE, SIZE), np.uint8)
    pixels[: SIZE // 2] = 255
    return Image.fromarray(pixels)


def assert_close(one: Pixels, other: Pixels) -> None:
    """Equal but for rounding: 1e-5 in float32 moves few pixels, and those by one level."""
    difference = np.abs(one.astype(int) - other.astype(int))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.01


class Model:
    """One random pipeline: served step by step, and served alone, one row a call, in request mode."""

    def __init__(self, family: str, folder: Path) -> None:
        getattr(testing_pipelines, family)().save_pretrained(folder)
        self.folder = str(folder)
        config = EngineConfig(model=self.folder, num_threads=1, mode="step", warmup=False)
        self.adapter = StepPipeline(config)
        self.forwards: list[tuple[str, int]] = []
        self._advance = self.adapter.advance
        self.adapter.advance = self._record  # type: ignore[method-assign]
        self.engine = DiffusionEngine.make_engine(config, adapter=self.adapter)
        alone = EngineConfig(model=self.folder, num_threads=1, mode="request", warmup=False, max_batch_rows=1)
        self.alone = DiffusionEngine.make_engine(alone, adapter=WholePipeline(alone))

    def _record(self, calls: Sequence[RowCall]) -> None:
        self.forwards.append((calls[0].stage, len(calls)))
        self._advance(calls)

    def run(self, *requests: DiffusionRequest) -> list[Event]:
        self.forwards.clear()
        self.engine.pause()
        streams = [self.engine.submit(one) for one in requests]
        self.engine.resume()
        return [stream.result(SOON_S) for stream in streams]

    def pixels(self, *requests: DiffusionRequest) -> list[Pixels]:
        return [pixels(event) for event in self.run(*requests)]

    def expected(self, wanted: DiffusionRequest) -> Pixels:
        return pixels(self.alone.submit(wanted).result(SOON_S))

    @property
    def denoised(self) -> list[int]:
        return [num_rows for stage, num_rows in self.forwards if stage == "denoising"]

    def close(self) -> None:
        self.engine.close()
        self.alone.close()


def pixels(event: Event) -> Pixels:
    assert isinstance(event, Completed), event
    return event.media[0].pixels


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Model]]:
    made: dict[str, Model] = {}

    def get(family: str) -> Model:
        if family not in made:
            made[family] = Model(family, tmp_path_factory.mktemp(family))
        return made[family]

    yield get
    for model in made.values():
        model.close()


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest, models: Callable[[str], Model]) -> Model:
    return models(request.param)


@pytest.fixture
def sd(models: Callable[[str], Model]) -> Model:
    return models("stable_diffusion")


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


@st.composite
def mixes(draw: st.DrawFn) -> list[DiffusionRequest]:
    requests = []
    for i in range(draw(st.integers(2, 5))):
        image = picture(draw(st.integers(0, 2))) if draw(st.booleans()) else None
        requests.append(
            request(
                f"r{i}",
                draw(st.sampled_from(PROMPTS)),
                height=draw(st.sampled_from([16, 24])),
                num_inference_steps=draw(st.integers(2, 5)),
                guidance_scale=draw(st.sampled_from([1.0, 3.0, 8.0])),
                negative_prompt=draw(st.sampled_from([None, "", "fog"])),
                seed=draw(st.integers(0, 5)),
                num_outputs=draw(st.integers(1, 2)),
                noise_scheduler=draw(st.sampled_from([None, "euler", "dpmpp_2m"])),
                image=image,
                strength=None if image is None else draw(st.sampled_from([0.5, 1.0])),
            )
        )
    return requests


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=mixes(), aborted=st.integers(0, 4))
def test_neighbours_never_show(sd: Model, wanted: list[DiffusionRequest], aborted: int) -> None:
    sd.engine.pause()
    streams = [sd.engine.submit(one) for one in wanted]
    sd.engine.resume()
    if aborted < len(wanted):
        streams[aborted].get(SOON_S)
        streams[aborted].close()
    for one, stream in zip(wanted, streams, strict=True):
        end = stream.result(SOON_S)
        if isinstance(end, Aborted):
            continue
        reference = sd.alone.submit(one).result(SOON_S)
        assert isinstance(end, Completed), end
        assert isinstance(reference, Completed)
        for got, alone in zip(end.media, reference.media, strict=True):
            assert got.seed == alone.seed
            assert_close(got.pixels, alone.pixels)


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

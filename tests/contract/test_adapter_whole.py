"""WholePipeline against plain diffusers, on random pipelines of three families."""

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
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
    Progress,
    SamplingParams,
    testing_pipelines,
)
from engine.adapters.whole import WholePipeline
from engine.batch import Batch
from engine.errors import BatchAborted, InvalidRequest
from engine.request import Row

pytestmark = pytest.mark.usefixtures("one_thread")

Pixels = NDArray[np.uint8]
#: with the tokens of a prompt that each reads: CLIP's own bound, or T5's, less two special tokens
FAMILIES = {"stable_diffusion": 30, "stable_diffusion_3": 254, "flux": 510}
PROMPTS = ("a red house", "two boats at night", "", "a small blue star above a very large green moon")
SIZE = 16
STEPS = 3
SOON_S = 60.0
REQUEST_FIELDS = {"image", "mask_image", "priority", "solo", "deadline_s"}


def request(request_id: str, prompt: str = PROMPTS[0], **changes: Any) -> DiffusionRequest:
    top = {name: value for name, value in changes.items() if name in REQUEST_FIELDS}
    rest = {name: value for name, value in changes.items() if name not in REQUEST_FIELDS}
    params = SamplingParams(**{"height": SIZE, "width": SIZE, "num_inference_steps": STEPS, "seed": 0, **rest})
    return DiffusionRequest(request_id=request_id, prompt=prompt, params=params, **top)


def completed(event: Event) -> Completed:
    assert isinstance(event, Completed), event
    return event


def picture(seed: int = 0, size: tuple[int, int] = (SIZE, SIZE)) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def assert_close(one: Pixels, other: Pixels) -> None:
    """Equal but for rounding: 1e-5 in float32 moves few pixels, and those by one level."""
    difference = np.abs(one.astype(int) - other.astype(int))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.01


class Model:
    """One random pipeline in a folder, the engine that serves it, and the same folder under plain diffusers."""

    def __init__(self, family: str, folder: Path) -> None:
        getattr(testing_pipelines, family)().save_pretrained(folder)
        self.folder = str(folder)
        self.num_tokens = FAMILIES[family]
        self.plain = diffusers.DiffusionPipeline.from_pretrained(folder, dtype=torch.float32)
        self.plain.set_progress_bar_config(disable=True)
        config = EngineConfig(model=self.folder, num_threads=1, admission_wait_ms=0)
        self.adapter = WholePipeline(config)
        self.engine = DiffusionEngine.make_engine(config, adapter=self.adapter)

    def run(self, *requests: DiffusionRequest) -> list[Event]:
        """All at once, so that what can share a batch does."""
        self.engine.pause()
        streams = [self.engine.submit(one) for one in requests]
        self.engine.resume()
        return [stream.result(SOON_S) for stream in streams]

    def pixels(self, *requests: DiffusionRequest) -> list[Pixels]:
        """The first output of each."""
        return [completed(event).media[0].pixels for event in self.run(*requests)]

    def expected(self, wanted: DiffusionRequest, pipeline: Any = None, **changes: Any) -> Pixels:
        """What plain diffusers makes of a request of one output."""
        params = wanted.params
        arguments = {
            "prompt": wanted.prompt,
            "height": params.height,
            "width": params.width,
            "num_inference_steps": params.num_inference_steps,
            "guidance_scale": params.guidance_scale,
            "generator": torch.Generator("cpu").manual_seed(params.seed),
            **({"negative_prompt": params.negative_prompt} if params.negative_prompt is not None else {}),
            **changes,
        }
        return np.asarray((pipeline or self.plain)(**arguments).images[0])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Model]]:
    made: dict[str, Model] = {}

    def get(family: str) -> Model:
        if family not in made:
            made[family] = Model(family, tmp_path_factory.mktemp(family))
        return made[family]

    yield get
    for model in made.values():
        model.engine.close()


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest, models: Callable[[str], Model]) -> Model:
    return models(request.param)


@pytest.fixture
def sd(models: Callable[[str], Model]) -> Model:
    return models("stable_diffusion")


class TestEveryFamily:
    def test_solo_is_plain_diffusers_to_the_last_bit(self, model: Model) -> None:
        wanted = request("a", PROMPTS[1], seed=11, guidance_scale=5.0)
        assert np.array_equal(model.pixels(wanted)[0], model.expected(wanted))

    def test_exact_rows_are_plain_calls_to_the_last_bit_in_any_company(self, model: Model) -> None:
        exact = request("exact", PROMPTS[1], seed=5, num_outputs=2, exact=True)
        done = completed(model.run(request("mate"), exact, request("other", PROMPTS[3]))[1])
        for media in done.media:
            assert np.array_equal(media.pixels, model.expected(request("x", PROMPTS[1], seed=media.seed)))
        assert done.metrics.batch_rows_mean == 1.0

    def test_a_batched_row_is_the_solo_picture(self, model: Model) -> None:
        wanted = [request(f"r{i}", prompt, seed=i) for i, prompt in enumerate(PROMPTS)]
        events = model.run(*wanted)
        assert {completed(event).metrics.batch_rows_mean for event in events} == {4.0}
        solo = [model.expected(one) for one in wanted]
        for event, alone in zip(events, solo, strict=True):
            assert_close(completed(event).media[0].pixels, alone)
        swapped = np.abs(solo[0].astype(int) - model.expected(request("x", PROMPTS[1], seed=0)).astype(int))
        assert swapped.max() > 10, "prompts must show, or this test could not see a mix-up"

    def test_floats_agree_to_1e_5(self, model: Model) -> None:
        rows = tuple(Row(request(f"r{i}", prompt, seed=i), 0) for i, prompt in enumerate(PROMPTS))
        key = model.adapter.batch_key(rows[0].request)
        pipeline = model.adapter._pipeline("text2image")
        together = model.plain(**pipeline.arguments(Batch(key, rows))).images
        for row, image in zip(rows, together, strict=True):
            alone = model.plain(**pipeline.arguments(Batch(key, (row,)))).images[0]
            assert np.abs(alone - image).max() < 1e-5

    def test_an_abort_leaves_the_mates_equal_to_the_last_bit(self, model: Model) -> None:
        wanted = [request(f"r{i}", prompt, seed=i, num_inference_steps=6) for i, prompt in enumerate(PROMPTS)]
        undisturbed = model.pixels(*wanted)
        model.engine.pause()
        streams = [model.engine.submit(one) for one in wanted]
        model.engine.resume()
        for event in streams[2]:
            if isinstance(event, Progress) and event.step == 2:
                model.engine.abort("r2")
            if isinstance(event, Aborted):
                assert event.step in (2, 3, 4)
                break
        else:
            pytest.fail("not aborted")
        for i in (0, 1, 3):
            assert np.array_equal(completed(streams[i].result(SOON_S)).media[0].pixels, undisturbed[i])

    def test_outputs_and_jobs_are_distinct_and_replay_from_their_seed(self, model: Model) -> None:
        """AI-Horde 188: drawn seeds that repeat inside a batch."""
        one_of_four = request("n", num_outputs=4, seed=100)
        singles = [request(f"r{i}", seed=200 + i) for i in range(4)]
        events = [completed(event) for event in model.run(one_of_four, *singles)]
        media = [item for event in events for item in event.media]
        assert len({item.pixels.tobytes() for item in media}) == 8
        assert [item.seed for item in media] == [*range(100, 104), *range(200, 204)]
        for item in (media[2], media[6]):
            assert_close(model.pixels(request("again", seed=item.seed))[0], item.pixels)

    def test_identical_jobs_get_identical_pictures(self, model: Model) -> None:
        """sglang 28502: five identical prompts degrade each other."""
        pixels = model.pixels(*(request(f"r{i}", PROMPTS[1], seed=9) for i in range(5)))
        for one in pixels:
            assert_close(one, pixels[0])
            assert_close(one, model.expected(request("x", PROMPTS[1], seed=9)))

    def test_steps_are_reported_one_by_one(self, model: Model) -> None:
        events = list(model.engine.submit(request("a", num_inference_steps=4)))
        steps = [(e.step, e.num_steps) for e in events if isinstance(e, Progress) and e.stage == "denoising"]
        assert steps == [(k, 4) for k in range(5)]
        stages = [e.stage for e in events if isinstance(e, Progress)]
        assert stages == sorted(stages, key=["encoding", "denoising", "decoding"].index)

    def test_any_prompts_run_in_one_batch_and_truncation_is_told(self, model: Model) -> None:
        prompts = ["", "🙂🙃", "a\0b", "x" * 20_000, "word " * 5_000, PROMPTS[0]]
        events = model.run(*(request(f"r{i}", prompt) for i, prompt in enumerate(prompts)))
        for prompt, event in zip(prompts, events, strict=True):
            told = (f"prompt truncated at token {model.num_tokens}",) if len(prompt) > 1000 else ()
            assert completed(event).warnings == told
            assert completed(event).metrics.batch_rows_mean == 6.0
        assert_close(completed(events[5]).media[0].pixels, model.expected(request("x")))


class TestNeighbourIndependence:
    def test_guidance_size_steps_and_negatives_never_come_from_a_neighbour(self, model: Model) -> None:
        wanted = [
            request("plain", seed=1),
            request("negative", seed=1, negative_prompt="boats"),
            request("empty-negative", seed=1, negative_prompt=""),
            request("guidance", seed=1, guidance_scale=8.0),
            request("unguided", seed=1, guidance_scale=1.0),
            request("steps", seed=1, num_inference_steps=5),
            request("size", seed=1, height=24),
        ]
        together = model.run(*wanted, *(request(f"mate{i}", PROMPTS[3]) for i in range(3)))
        for one, event in zip(wanted, together, strict=False):
            (alone,) = model.run(one)
            assert_close(completed(event).media[0].pixels, completed(alone).media[0].pixels)
            assert completed(event).media[0].pixels.shape == (one.params.height, SIZE, 3)
        assert_close(completed(together[1]).media[0].pixels, self.expected_negative(model, wanted[1]))

    def expected_negative(self, model: Model, wanted: DiffusionRequest) -> Pixels:
        """FLUX reads a negative prompt only with true CFG, so there it has to be as if there was none."""
        return model.expected(request("x", seed=1) if "Flux" in type(model.plain).__name__ else wanted)

    def test_a_negative_prompt_that_cannot_be_followed_is_told(self, models: Callable[[str], Model]) -> None:
        wanted = request("a", negative_prompt="boats")
        (event,) = models("flux").run(wanted)
        assert completed(event).warnings == ("negative prompt ignored: FluxPipeline has no use for one",)
        assert not models("flux").adapter.batch_key(wanted).has_negative
        (event,) = models("stable_diffusion").run(request("a", negative_prompt="boats", guidance_scale=1.0))
        assert completed(event).warnings == ("negative prompt has no effect: guidance_scale is not above 1",)

    def test_nothing_of_a_request_stays_on_the_pipeline(self, sd: Model) -> None:
        before = sd.pixels(request("a"))[0]
        sd.run(request("b", noise_scheduler="euler_a", guidance_scale=1.0, num_inference_steps=7, negative_prompt="x"))
        sd.engine.abort("b")
        assert np.array_equal(sd.pixels(request("a"))[0], before)


class TestNoiseSchedulers:
    @pytest.mark.parametrize("name", ["ddim", "ddpm", "euler_a", "dpmpp_2m", "unipc", "pndm", "heun"])
    def test_each_is_the_plain_one_and_keeps_rows_apart(self, sd: Model, name: str) -> None:
        """A1111 376: ancestral samplers need step noise of their own for each row."""
        wanted = [request(f"r{i}", PROMPTS[i], seed=i, noise_scheduler=name, num_inference_steps=4) for i in range(2)]
        class_name = sd.adapter.batch_key(wanted[0]).noise_scheduler
        assert class_name is not None
        plain = diffusers.StableDiffusionPipeline.from_pipe(sd.plain)
        plain.set_progress_bar_config(disable=True)
        plain.scheduler = getattr(diffusers, class_name).from_config(sd.plain.scheduler.config)
        alone = [sd.expected(one, plain) for one in wanted]
        assert np.array_equal(sd.pixels(wanted[0])[0], alone[0])
        for pixels, solo in zip(sd.pixels(*wanted), alone, strict=True):
            assert_close(pixels, solo)

    def test_two_threads_that_share_the_engine_share_no_noise_scheduler(self, sd: Model) -> None:
        """diffusers 7851: its scheduler counts steps, so that two calls at a time ran past its end."""

        def worker(number: int) -> list[tuple[DiffusionRequest, Event]]:
            wanted = [request(f"t{number}-{k}", seed=k, num_inference_steps=3 + number + k % 2) for k in range(4)]
            return [(one, sd.engine.submit(one).result(SOON_S)) for one in wanted]

        with ThreadPoolExecutor(2) as threads:
            for one, event in itertools.chain.from_iterable(threads.map(worker, range(2))):
                assert_close(completed(event).media[0].pixels, sd.expected(one))

    def test_ancestral_rows_of_one_prompt_differ_by_their_seed_alone(self, sd: Model) -> None:
        one, other, same = sd.pixels(
            *(request(f"r{i}", seed=seed, noise_scheduler="euler_a") for i, seed in enumerate((1, 2, 1)))
        )
        assert_close(one, same)
        assert np.abs(one.astype(int) - other.astype(int)).max() > 10

    def test_a_default_said_aloud_shares_the_batch(self, sd: Model) -> None:
        events = sd.run(
            request("a"), request("b", noise_scheduler="ddim"), request("c", noise_scheduler="DDIMScheduler")
        )
        assert {completed(event).metrics.batch_rows_mean for event in events} == {3.0}

    def test_an_unknown_name_is_refused_with_those_that_there_are(self, model: Model) -> None:
        (event,) = model.run(request("a", noise_scheduler="nope"))
        assert isinstance(event, Failed)
        assert event.error_type == "invalid_request"
        assert type(model.plain.scheduler).__name__ in event.message

    def test_too_few_steps_for_it_are_refused_in_words_and_the_mates_run(self, sd: Model) -> None:
        events = sd.run(request("a", noise_scheduler="pndm", num_inference_steps=2), request("b"))
        assert isinstance(events[0], Failed)
        assert events[0].error_type == "invalid_request"
        assert "PNDMScheduler cannot do 2 steps" in events[0].message
        completed(events[1])

    def test_heun_tells_all_of_its_calls(self, sd: Model) -> None:
        events = list(sd.engine.submit(request("a", noise_scheduler="heun", num_inference_steps=4)))
        steps = [(e.step, e.num_steps) for e in events if isinstance(e, Progress) and e.stage == "denoising" and e.step]
        assert steps == [(k, 7) for k in range(1, 8)]


class TestImageConditioning:
    @pytest.fixture
    def plain(self, sd: Model) -> Any:
        pipeline = diffusers.AutoPipelineForImage2Image.from_pipe(sd.plain)
        pipeline.set_progress_bar_config(disable=True)
        return pipeline

    @pytest.mark.parametrize("family", ["stable_diffusion", "flux"])
    def test_image_to_image_is_plain_diffusers(self, models: Callable[[str], Model], family: str) -> None:
        model = models(family)
        plain = diffusers.AutoPipelineForImage2Image.from_pipe(model.plain)
        plain.set_progress_bar_config(disable=True)
        wanted = request("a", image=picture(), strength=0.7, num_inference_steps=5)
        expected = model.expected(wanted, plain, image=picture(), strength=0.7, **without_size(plain))
        assert np.array_equal(model.pixels(wanted)[0], expected)

    @pytest.mark.parametrize("family", ["stable_diffusion", "flux"])
    def test_inpainting_is_plain_diffusers(self, models: Callable[[str], Model], family: str) -> None:
        model = models(family)
        plain = diffusers.AutoPipelineForInpainting.from_pipe(model.plain)
        plain.set_progress_bar_config(disable=True)
        mask = Image.new("L", (SIZE, SIZE))
        mask.paste(255, (0, 0, SIZE // 2, SIZE))
        wanted = request("a", image=picture(), mask_image=mask, strength=0.9, num_inference_steps=5)
        expected = model.expected(wanted, plain, image=picture(), mask_image=mask, strength=0.9)
        assert np.array_equal(model.pixels(wanted)[0], expected)

    def test_images_of_a_batch_are_not_mixed(self, sd: Model) -> None:
        wanted = [request(f"r{i}", image=picture(i), strength=0.5, num_inference_steps=4) for i in range(3)]
        events = sd.run(*wanted, request("text", num_inference_steps=4))
        assert [completed(event).metrics.batch_rows_mean for event in events] == [3.0, 3.0, 3.0, 1.0]
        for one, event in zip(wanted, events, strict=False):
            assert_close(completed(event).media[0].pixels, sd.pixels(one)[0])

    def test_progress_counts_the_steps_that_strength_leaves(self, sd: Model) -> None:
        events = list(sd.engine.submit(request("a", image=picture(), strength=0.5, num_inference_steps=8)))
        steps = [(e.step, e.num_steps) for e in events if isinstance(e, Progress) and e.stage == "denoising"]
        assert steps == [(k, 4) for k in range(5)]

    @pytest.mark.parametrize(("strength", "steps"), [(0.01, 20), (0.0, 20), (0.3, 3)])
    def test_a_strength_that_leaves_no_step_is_refused_and_the_mates_run(
        self, sd: Model, strength: float, steps: int
    ) -> None:
        """diffusers 1867 and 11092: zero steps crash."""
        mate = request("b", image=picture(), strength=0.9)
        events = sd.run(request("a", image=picture(), strength=strength, num_inference_steps=steps), mate)
        assert isinstance(events[0], Failed)
        assert events[0].error_type == "invalid_request"
        assert "leaves no step to run" in events[0].message
        completed(events[1])

    @pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P"])
    def test_any_image_mode_and_size_collate(self, sd: Model, mode: str) -> None:
        odd = picture(1, (40, 24)).convert(mode)
        events = sd.run(request("a", image=odd, strength=0.9), request("b", image=picture(), strength=0.9))
        assert completed(events[0]).metrics.batch_rows_mean == 2.0
        assert completed(events[0]).warnings == ("image resized from 40x24 to 16x16",)
        assert completed(events[1]).warnings == ()
        assert completed(events[0]).media[0].pixels.shape == (SIZE, SIZE, 3)

    def test_strength_without_an_image_is_told(self, sd: Model) -> None:
        (event,) = sd.run(request("a", strength=0.5))
        assert completed(event).warnings == ("strength ignored: StableDiffusionPipeline takes none",)


def without_size(pipeline: Any) -> dict[str, Any]:
    """The image decides the size of StableDiffusionImg2ImgPipeline, which would warn about these."""
    return {"height": SIZE, "width": SIZE} if "Flux" in type(pipeline).__name__ else {"height": None, "width": None}


class TestFaults:
    """Faults put into the real UNet: the engine's answers are the same as on the fake."""

    @pytest.fixture
    def faulty(self, sd: Model, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], list[int]]:
        unet = sd.adapter._pipeline("text2image").pipeline.unet
        forward = unet.forward

        def install(fault: Callable[[int, Any], Any]) -> list[int]:
            calls: list[int] = []

            def broken(sample: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
                calls.append(len(sample))
                return fault(len(sample), forward(sample, *args, **kwargs))

            monkeypatch.setattr(unet, "forward", broken)
            return calls

        return install

    def test_a_row_that_is_not_finite_fails_alone(self, sd: Model, faulty: Any) -> None:
        def poison(rows: int, out: Any) -> Any:
            noise = out[0].clone()
            noise[1::2] = float("nan")  # the second request, with and without guidance
            return (noise,)

        wanted = [request("a", seed=1), request("b", seed=2)]
        clean = sd.pixels(*wanted)
        faulty(poison)
        good, bad = sd.run(*wanted)
        assert np.array_equal(completed(good).media[0].pixels, clean[0])
        assert isinstance(bad, Failed)
        assert (bad.error_type, bad.retryable) == ("model_error", False)
        assert "not finite" in bad.message

    def test_out_of_memory_splits_and_is_remembered(self, sd: Model, faulty: Any) -> None:
        def full(rows: int, out: Any) -> Any:
            if rows > 4:  # two requests with guidance
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")
            return out

        calls = faulty(full)
        wanted = [request(f"r{i}", seed=i, height=40) for i in range(4)]
        events = sd.run(*wanted)
        assert [completed(event).metrics.batch_rows_mean for event in events] == [2.0] * 4
        assert calls == [8] + [4] * 2 * STEPS
        calls.clear()
        sd.run(*wanted)
        assert max(calls) == 4

    def test_one_row_out_of_memory(self, sd: Model, faulty: Any) -> None:
        def full(rows: int, out: Any) -> Any:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory")

        faulty(full)
        (event,) = sd.run(request("a", width=40))
        assert isinstance(event, Failed)
        assert event.error_type == "out_of_memory"

    def test_an_abort_stops_the_device_within_one_step(self, sd: Model, faulty: Any) -> None:
        calls = faulty(lambda rows, out: out)
        for event in sd.engine.submit(request("a", num_inference_steps=50)):
            if isinstance(event, Progress) and event.step == 3:
                break
        sd.pixels(request("b", num_inference_steps=1))
        assert len(calls) <= 3 + 2 + 1

    def test_a_step_hook_may_stop_the_call_anywhere_and_the_next_is_clean(self, sd: Model) -> None:
        wanted = request("a", num_inference_steps=4)
        clean = sd.pixels(wanted)[0]
        batch = Batch(sd.adapter.batch_key(wanted), (Row(wanted, 0),))
        for stop in range(7):
            seen: list[int] = []

            def hook(*_: Any, seen: list[int] = seen, stop: int = stop) -> None:
                seen.append(1)
                if len(seen) > stop:
                    raise BatchAborted

            with pytest.raises(BatchAborted):
                sd.adapter.run(batch, hook)
            assert len(seen) == stop + 1
        assert np.array_equal(sd.pixels(wanted)[0], clean)


class TestRefusals:
    @pytest.mark.parametrize("changes", [{"height": 33}, {"width": 31}])
    def test_sizes(self, model: Model, changes: dict[str, int]) -> None:
        with pytest.raises(InvalidRequest, match=f"{next(iter(changes))} .* must be a multiple of"):
            model.adapter.batch_key(request("a", **changes))

    def test_tasks(self, sd: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sd.adapter, "_tasks", {"text2image": sd.adapter._pipeline("text2image")})
        with pytest.raises(InvalidRequest, match="does not serve image2image; it serves: text2image"):
            sd.adapter.batch_key(request("a", image=picture()))

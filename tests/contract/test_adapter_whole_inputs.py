"""What a request may bring to a pipeline call: a noise scheduler, an image, a mask."""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import diffusers
import numpy as np
import pytest
from PIL import Image

from engine import (
    DiffusionRequest,
    Event,
    Failed,
    Progress,
)
from tests.contract.random_models import PROMPTS, SIZE, SOON_S, assert_close, picture
from tests.contract.whole_models import Model, completed, request

pytestmark = pytest.mark.usefixtures("one_thread")


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

"""WholePipeline against plain diffusers, on random pipelines of three families."""

from collections.abc import Callable

import numpy as np
import pytest

from engine import (
    Aborted,
    DiffusionRequest,
    Progress,
)
from engine.batch import Batch
from engine.request import Row
from tests.contract.random_models import PROMPTS, SIZE, SOON_S, Pixels, assert_close
from tests.contract.whole_models import Model, completed, request

pytestmark = pytest.mark.usefixtures("one_thread")


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

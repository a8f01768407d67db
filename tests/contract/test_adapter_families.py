"""Request mode of every family against plain diffusers, on random pipelines: pictures, videos and sound."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch

from engine import Completed, DiffusionEngine, DiffusionRequest, EngineConfig, Progress, testing_pipelines
from engine.adapter import Capabilities, Output
from engine.adapters import outputs
from engine.adapters.whole import WholePipeline
from engine.batch import Batch
from engine.errors import InvalidRequest, ModelError
from engine.request import Row
from tests.contract.families import FAMILIES, NEGATIVES, PROMPTS, STEPS, Family, picture

pytestmark = pytest.mark.usefixtures("one_thread")

Floats = np.ndarray[Any, Any]
#: the least change of an output, in units of its range, that counts as an effect
VISIBLE = 1 / 255


class Model:
    """A random pipeline, and the adapter over the folder that it was saved to."""

    def __init__(self, name: str, folder: Path) -> None:
        self.family: Family = FAMILIES[name]
        getattr(testing_pipelines, name)().save_pretrained(folder)
        self.folder = str(folder)
        # Bits depend on where in memory the weights lie, so both are loaded alike.
        self.plain = diffusers.DiffusionPipeline.from_pretrained(folder, dtype=torch.float32)
        self.plain.set_progress_bar_config(disable=True)
        self.weights_bytes = sum(file.stat().st_size for file in folder.rglob("*.safetensors"))
        self.adapter = WholePipeline(EngineConfig(model=self.folder, num_threads=1))
        self.capabilities: Capabilities = self.adapter.load()

    def expected(self, wanted: DiffusionRequest) -> Floats:
        return self.family.call(self.plain, wanted)

    def run(self, *wanted: DiffusionRequest) -> Sequence[Any]:
        """The outcomes of one pipeline call for all."""
        keys = {self.adapter.batch_key(one) for one in wanted}
        assert len(keys) == 1
        return self.adapter.run(Batch(keys.pop(), tuple(Row(one, 0) for one in wanted)), lambda *_: None)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Model]]:
    made: dict[str, Model] = {}

    def get(name: str) -> Model:
        if name not in made:
            made[name] = Model(name, tmp_path_factory.mktemp(name))
        return made[name]

    yield get
    for model in made.values():
        model.adapter.close()


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest, models: Callable[[str], Model]) -> Model:
    return models(request.param)


@pytest.fixture
def raws(monkeypatch: pytest.MonkeyPatch) -> list[Floats]:
    """Each row as the pipeline gave it, before it is rounded."""
    seen: list[Floats] = []

    def noted(raw: Floats, row: Row, pipeline: Any) -> Any:
        seen.append(raw)
        return outputs.media(raw, row, pipeline)

    monkeypatch.setattr("engine.adapters.whole.media", noted)
    return seen


def difference(one: Floats, other: Floats) -> float:
    """The largest, in units of the range: 1 for pixels, the loudest sample for sound."""
    assert one.shape == other.shape
    scale = 1.0 if one.ndim > 2 else max(float(np.abs(other).max()), 1e-12)
    return float(np.abs(one - other).max()) / scale


def four(family: Family) -> list[DiffusionRequest]:
    """As different as rows of one call may be."""
    prompts = [PROMPTS[0], PROMPTS[1], PROMPTS[2], PROMPTS[3]]
    negatives: list[dict[str, Any]] = [{"negative_prompt": text} if family.takes_negative else {} for text in NEGATIVES]
    return [family.request(f"r{k}", prompts[k], seed=7 * k, guidance_scale=3.0, **negatives[k]) for k in range(4)]


class TestTheRandomPipelines:
    def test_every_input_shows_in_the_output(self, model: Model) -> None:
        family = model.family
        base = family.request()
        changed = {
            "prompt": family.request(prompt=PROMPTS[1]),
            "seed": family.request(seed=1),
            "guidance": family.request(guidance_scale=8.0),
            **({"negative": family.request(negative_prompt=PROMPTS[1])} if family.takes_negative else {}),
            **({"image": family.request(image=picture(1, family.size))} if family.takes_image else {}),
        }
        first = model.expected(base)
        assert np.array_equal(first, model.expected(base))
        assert np.isfinite(first).all()
        effects = {name: difference(model.expected(other), first) for name, other in changed.items()}
        assert min(effects.values()) > VISIBLE, effects

    def test_each_is_tiny(self, model: Model) -> None:
        assert model.weights_bytes < 2_500_000


class TestEveryFamily:
    def test_solo_is_plain_diffusers_to_the_last_bit(self, model: Model, raws: list[Floats]) -> None:
        wanted = model.family.request(prompt=PROMPTS[1], seed=11, guidance_scale=5.0)
        (outcome,) = model.run(wanted)
        assert isinstance(outcome, Output)
        assert outcome.warnings == ()
        assert np.array_equal(raws[0], model.expected(wanted))

    def test_four_rows_of_one_call_are_four_solo_calls(self, model: Model, raws: list[Floats]) -> None:
        wanted = four(model.family)
        groups: dict[Any, list[DiffusionRequest]] = {}
        for one in wanted:
            groups.setdefault(model.adapter.batch_key(one), []).append(one)
        assert len(groups) == (4 if model.capabilities.model_class == "AudioLDM2Pipeline" else 1)
        for group in groups.values():
            model.run(*group)
        alone = {one.request_id: model.expected(one) for one in wanted}
        order = [one for group in groups.values() for one in group]
        differences = [difference(raw, alone[one.request_id]) for raw, one in zip(raws, order, strict=True)]
        assert max(differences) < model.family.tolerance, differences
        assert min(difference(alone["r0"], alone[f"r{k}"]) for k in (1, 2, 3)) > VISIBLE


class TestVideo:
    def test_what_comes_out(self, models: Callable[[str], Model]) -> None:
        for name in ("wan", "wan_image_to_video", "ltx"):
            model = models(name)
            wanted = model.family.request()
            (outcome,) = model.run(wanted)
            made = outcome.media
            assert model.capabilities.modality == made.kind == "video"
            assert made.pixels.shape == (wanted.params.num_frames, model.family.size, model.family.size, 3)
            assert made.pixels.dtype == np.uint8
            assert (made.num_frames, made.seed) == (wanted.params.num_frames, 0)

    def test_a_frame_rate_that_the_model_is_not_told_is_how_it_is_played(self, models: Callable[[str], Model]) -> None:
        wan = models("wan")
        slow, default = wan.family.request(fps=8.0), wan.family.request()
        one, other = wan.run(slow, default)
        assert (one.media.fps, other.media.fps) == (8.0, 16.0)
        assert np.array_equal(one.media.pixels, other.media.pixels)
        assert one.warnings == other.warnings == ()

    def test_a_frame_rate_that_the_model_is_told_is_in_the_key(self, models: Callable[[str], Model]) -> None:
        ltx = models("ltx")
        keys = {fps: ltx.adapter.batch_key(ltx.family.request(fps=fps)) for fps in (None, 25, 10)}
        assert keys[None] == keys[25] != keys[10]
        (slow,), (fast,) = ltx.run(ltx.family.request(fps=10)), ltx.run(ltx.family.request(fps=None))
        assert (slow.media.fps, fast.media.fps) == (10.0, 25.0)
        assert not np.array_equal(slow.media.pixels, fast.media.pixels)

    def test_a_number_of_frames_that_the_model_does_not_make_is_told(self, models: Callable[[str], Model]) -> None:
        wan = models("wan")
        (outcome,) = wan.run(wan.family.request(num_frames=7))
        assert outcome.media.num_frames == 5
        assert outcome.warnings == ("5 frames instead of 7: the model makes no such number",)

    def test_the_default_number_of_frames_said_aloud_shares_the_batch(self, models: Callable[[str], Model]) -> None:
        wan = models("wan")
        keys = [wan.adapter.batch_key(wan.family.request(num_frames=frames)) for frames in (None, 81, 5)]
        assert keys[0] == keys[1] != keys[2]

    def test_a_length_in_seconds_is_ignored_and_told(self, models: Callable[[str], Model]) -> None:
        wan = models("wan")
        (outcome,) = wan.run(wan.family.request(duration_s=3.0))
        assert outcome.warnings == ("duration_s ignored: WanPipeline takes none",)


class TestSound:
    def test_what_comes_out(self, models: Callable[[str], Model]) -> None:
        for name, channels, num_samples in (("stable_audio", 2, 1600), ("audioldm2", 1, 400)):
            model = models(name)
            (outcome,) = model.run(model.family.request())
            made = outcome.media
            assert model.capabilities.modality == made.kind == "audio"
            assert (made.samples.shape, made.samples.dtype) == ((num_samples, channels), np.float32)
            assert made.sample_rate == 8000
            assert made.duration_s == model.family.params["duration_s"]

    def test_what_a_picture_has_is_in_no_key_and_asks_for_nothing(self, models: Callable[[str], Model]) -> None:
        sound = models("stable_audio")
        one, other = sound.family.request(), sound.family.request(height=40, width=72)
        assert sound.adapter.batch_key(one) == sound.adapter.batch_key(other)
        (outcome,) = sound.run(sound.family.request(num_frames=5, fps=8.0))
        assert outcome.warnings == tuple(
            f"{name} ignored: StableAudioPipeline takes none" for name in ("num_frames", "fps")
        )

    def test_a_length_beyond_the_model_is_refused(self, models: Callable[[str], Model]) -> None:
        sound = models("stable_audio")
        with pytest.raises(InvalidRequest, match="longer than the model maximum"):
            sound.run(sound.family.request(duration_s=60.0))

    def test_audioldm2_shares_calls_among_texts_of_one_length_alone(
        self, models: Callable[[str], Model], raws: list[Floats]
    ) -> None:
        """It lets its GPT-2 see the padding, so that a row would depend on the longest of its company."""
        sound = models("audioldm2")
        key = sound.adapter.batch_key
        one, same, longer = (sound.family.request(prompt=text) for text in ("a dog", "a cat", "a bird"))
        assert key(one) == key(same) != key(longer)
        sound.run(one, same)
        for raw, wanted in zip(raws, (one, same), strict=True):
            assert difference(raw, sound.expected(wanted)) < sound.family.tolerance


class TestConditioningImages:
    def test_who_cannot_do_without_says_so(self, models: Callable[[str], Model]) -> None:
        for name in ("wan_image_to_video", "stable_diffusion_controlnet"):
            model = models(name)
            assert model.capabilities.tasks == {"image2image"}
            with pytest.raises(InvalidRequest, match="does not serve text2image; it serves: image2image"):
                model.adapter.batch_key(FAMILIES["wan"].request())

    def test_a_pipeline_that_takes_one_image_is_given_one(
        self, models: Callable[[str], Model], raws: list[Floats]
    ) -> None:
        video = models("wan_image_to_video")
        first, second = picture(0), picture(1)
        one, same, other = (video.family.request(prompt=PROMPTS[k], image=[first, first, second][k]) for k in range(3))
        key = video.adapter.batch_key
        assert key(one) == key(same) != key(other)
        video.run(one, same)
        video.run(other)
        for raw, wanted in zip(raws, (one, same, other), strict=True):
            assert difference(raw, video.expected(wanted)) < video.family.tolerance

    def test_images_of_a_batch_are_not_mixed(self, models: Callable[[str], Model], raws: list[Floats]) -> None:
        control = models("stable_diffusion_controlnet")
        wanted = [control.family.request(image=picture(k)) for k in range(3)]
        control.run(*wanted)
        for raw, one in zip(raws, wanted, strict=True):
            assert difference(raw, control.expected(one)) < control.family.tolerance


class TestFaults:
    @pytest.mark.parametrize("name", ["wan", "ltx", "stable_audio"])
    def test_a_row_that_is_not_finite_fails_alone(
        self, models: Callable[[str], Model], name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = models(name)
        vae = model.adapter._pipeline("text2image").pipeline.vae
        decode = vae.decode

        def broken(*args: Any, **kwargs: Any) -> Any:
            decoded = decode(*args, **kwargs)
            decoded[0][1] = float("nan")
            return decoded

        monkeypatch.setattr(vae, "decode", broken)
        good, bad = model.run(model.family.request("a"), model.family.request("b", seed=1))
        assert isinstance(good, Output)
        assert isinstance(bad, ModelError)
        assert "not finite" in str(bad)


@pytest.mark.parametrize("name", ["wan_image_to_video", "ltx", "stable_audio", "z_image"])
def test_the_engine_warms_up_and_serves(models: Callable[[str], Model], name: str) -> None:
    model = models(name)
    config = EngineConfig(model=model.folder, num_threads=1, admission_wait_ms=0, mode="request")
    with DiffusionEngine.make_engine(config) as engine:
        events = list(engine.submit(model.family.request()))
    done = events[-1]
    assert isinstance(done, Completed), done
    (outcome,) = model.run(model.family.request())
    for one, other in ((done.media[0].pixels, outcome.media.pixels), (done.media[0].samples, outcome.media.samples)):
        assert (one is None and other is None) or np.array_equal(one, other)
    steps = [event.step for event in events if isinstance(event, Progress) and event.stage == "denoising"]
    assert steps == list(range(STEPS + 1))

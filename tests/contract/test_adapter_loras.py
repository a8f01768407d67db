"""LoRA per request: each picture is plain diffusers with that request's adapters alone, whoever runs beside it."""

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import Checkpoint, DiffusionEngine, DiffusionRequest, EngineConfig, ModelLoadError, testing_pipelines
from engine.adapter import Output
from engine.adapters.stepwise import StepPipeline
from engine.batch import Batch
from engine.errors import InvalidRequest, ModelError
from engine.params import Loras
from engine.request import Row
from engine.result import Completed, Failed
from tests.contract.families import FAMILIES, PROMPTS
from tests.contract.loras import write_lora
from tests.contract.serving import serve

pytestmark = pytest.mark.usefixtures("one_thread")

Floats = np.ndarray[Any, Any]
ADAPTED = {
    "stable_diffusion": ("unet", "text_encoder"),
    "stable_diffusion_3": ("transformer", "text_encoder", "text_encoder_2"),
    "flux": ("transformer", "text_encoder"),
}
INK, OIL = "ink", "oil.v1-2"
SETS: tuple[Loras, ...] = (
    (),
    ((INK, 1.0),),
    ((OIL, 1.0),),
    ((INK, 0.25),),
    ((INK, 1.0), (OIL, -0.5)),
    ((OIL, -0.5), (INK, 1.0)),
)
SOON_S = 60.0


class Model:
    """A random pipeline and two LoRAs for it, one of them for its denoiser only."""

    def __init__(self, family: str, folder: Path) -> None:
        self.family = FAMILIES[family]
        self.folder = folder / "model"
        pipeline = getattr(testing_pipelines, family)()
        pipeline.save_pretrained(self.folder)
        self.loras = {
            INK: str(write_lora(pipeline, ADAPTED[family], folder / "ink.safetensors", seed=1)),
            OIL: str(write_lora(pipeline, ADAPTED[family][:1], folder / "oil.safetensors", seed=2)),
        }
        self._plain: dict[Loras, Any] = {}

    def config(self, **changes: Any) -> EngineConfig:
        base = {"model": str(self.folder), "num_threads": 1, "warmup": False, "mode": "step", "loras": self.loras}
        return EngineConfig(**{**base, **changes})

    def adapter(self, **changes: Any) -> StepPipeline:
        adapter = StepPipeline(self.config(**changes))
        adapter.load()
        return adapter

    def expected(self, wanted: DiffusionRequest) -> Floats:
        """What a pipeline makes of it that has never had other adapters."""
        loras = wanted.params.loras
        if loras not in self._plain:
            pipeline = diffusers.DiffusionPipeline.from_pretrained(self.folder)
            pipeline.set_progress_bar_config(disable=True)
            for name, _ in loras:
                file = Path(self.loras[name])
                pipeline.load_lora_weights(str(file.parent), weight_name=file.name, adapter_name=name.replace(".", "_"))
            if loras:
                pipeline.set_adapters([name.replace(".", "_") for name, _ in loras], [scale for _, scale in loras])
            self._plain[loras] = pipeline
        return self.family.call(self._plain[loras], wanted).astype(np.float64)

    def requests(self, sets: Sequence[Loras] = SETS, **changes: Any) -> list[DiffusionRequest]:
        return [
            self.family.request(
                f"r{i}", PROMPTS[1], **{"seed": i, "loras": loras, "num_inference_steps": 2 + i % 3, **changes}
            )
            for i, loras in enumerate(sets)
        ]


def batch(adapter: StepPipeline, *wanted: DiffusionRequest) -> Batch:
    return Batch(adapter.batch_key(wanted[0]), tuple(Row(one, 0) for one in wanted))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Model]:
    return functools.cache(lambda family: Model(family, tmp_path_factory.mktemp(family)))


@pytest.fixture(params=ADAPTED)
def model(request: pytest.FixtureRequest, models: Callable[[str], Model]) -> Model:
    return models(request.param)


@pytest.fixture
def sd(models: Callable[[str], Model]) -> Model:
    return models("stable_diffusion")


@pytest.fixture
def load() -> Iterator[Callable[..., StepPipeline]]:
    """Adapters that are closed at the end."""
    loaded: list[StepPipeline] = []

    def get(model: Model, **changes: Any) -> StepPipeline:
        loaded.append(model.adapter(**changes))
        return loaded[-1]

    yield get
    for adapter in loaded:
        adapter.close()


class TestEveryFamily:
    def test_each_set_has_an_effect_of_its_own(self, model: Model) -> None:
        same = [model.family.request("a", PROMPTS[1], seed=0, loras=loras) for loras in SETS[:5]]
        pictures = [model.expected(one) for one in same]
        for i, one in enumerate(pictures):
            for other in pictures[:i]:
                assert np.abs(one - other).max() > 1e-3

    def test_request_mode_in_any_order_is_plain_diffusers_to_the_last_bit(
        self, model: Model, load: Callable[..., StepPipeline], raws: dict[str, Floats]
    ) -> None:
        """Also a scale that changes under an adapter that is active already, and no adapters after some."""
        adapter = load(model, mode="request")
        for one in [*model.requests(), *reversed(model.requests())]:
            adapter.run(batch(adapter, one), lambda *_: None)
            assert np.array_equal(raws.pop(one.request_id), model.expected(one)), one.params.loras

    def test_request_mode_in_a_batch(
        self, model: Model, load: Callable[..., StepPipeline], raws: dict[str, Floats]
    ) -> None:
        adapter = load(model, mode="request")
        for loras in SETS[:4]:
            wanted = model.requests([loras] * 3, num_inference_steps=2)
            assert len({adapter.batch_key(one) for one in wanted}) == 1
            adapter.run(batch(adapter, *wanted), lambda *_: None)
            for one in wanted:
                assert np.abs(raws[one.request_id] - model.expected(one)).max() <= 1e-5

    def test_step_mode_beside_other_sets_is_plain_diffusers_to_the_last_bit(
        self, model: Model, load: Callable[..., StepPipeline], raws: dict[str, Floats]
    ) -> None:
        wanted = model.requests()
        serve(load(model), wanted, alone=True)
        for one in wanted:
            assert np.array_equal(raws[one.request_id], model.expected(one)), one.params.loras

    def test_step_mode_joins_rows_of_one_set_and_no_others(
        self, model: Model, load: Callable[..., StepPipeline], raws: dict[str, Floats]
    ) -> None:
        wanted = model.requests([*SETS, *SETS])
        shared = [turn.shared for turn in serve(load(model), wanted) if turn.stage == "denoising"]
        sets = {one.request_id: one.params.loras for one in wanted}
        assert max(map(len, shared)) == 2
        for group in shared:
            assert len({sets[name] for name in group}) == 1
        for one in wanted:
            assert np.abs(raws[one.request_id] - model.expected(one)).max() <= 1e-5, one.params.loras


class TestKeys:
    def test_sets_scales_and_order_make_another_batch(self, sd: Model, load: Callable[..., StepPipeline]) -> None:
        adapter = load(sd, mode="request")
        same = sd.requests(num_inference_steps=2)
        assert len({adapter.batch_key(one) for one in same}) == len(SETS)

    def test_an_unknown_name_is_refused(self, sd: Model, load: Callable[..., StepPipeline]) -> None:
        adapter = load(sd)
        with pytest.raises(InvalidRequest, match=r"lora 'chalk' is unknown to .*; it has ink, oil\.v1-2"):
            adapter.batch_key(sd.family.request(loras=(("chalk", 1.0),)))

    def test_more_than_fit_are_refused(self, sd: Model, load: Callable[..., StepPipeline]) -> None:
        with pytest.raises(InvalidRequest, match="2 loras are more than max_loras = 1"):
            load(sd, max_loras=1).batch_key(sd.family.request(loras=SETS[4]))


class TestRoom:
    def test_the_one_unused_for_longest_leaves_and_comes_back(
        self, sd: Model, load: Callable[..., StepPipeline], raws: dict[str, Floats], tmp_path: Path
    ) -> None:
        chalk = write_lora(testing_pipelines.stable_diffusion(), ("unet",), tmp_path / "chalk.safetensors", seed=3)
        adapter = load(sd, mode="request", max_loras=2, loras={**sd.loras, "chalk": str(chalk)})
        unet = adapter._loaded.unet
        in_memory = []
        for name in (INK, OIL, INK, "chalk", OIL, INK):
            one = sd.family.request("a", loras=((name, 1.0),))
            adapter.run(batch(adapter, one), lambda *_: None)
            in_memory.append(adapter._loras.loaded)
            if name != "chalk":
                assert np.array_equal(raws["a"], sd.expected(one))
        assert in_memory == [(INK,), (INK, OIL), (OIL, INK), (INK, "chalk"), ("chalk", OIL), (OIL, INK)]
        assert len({name.split("lora_A.")[1] for name, _ in unet.named_parameters() if "lora_A." in name}) == 2

    def test_an_adapter_that_left_under_a_held_row_comes_back_for_it(
        self, sd: Model, load: Callable[..., StepPipeline], raws: dict[str, Floats]
    ) -> None:
        adapter = load(sd, max_loras=1)
        wanted = sd.requests(SETS[:4])
        serve(adapter, wanted, alone=True)
        for one in wanted:
            assert np.array_equal(raws[one.request_id], sd.expected(one))


def test_a_resumed_row_has_its_adapters(sd: Model, load: Callable[..., StepPipeline], raws: dict[str, Floats]) -> None:
    adapter = load(sd)
    wanted = sd.family.request("r", PROMPTS[1], seed=5, num_inference_steps=4, loras=SETS[4])
    call = adapter.open(batch(adapter, wanted), lambda *_: None, alone=True)
    while (state := call.state()) is None or state.step < 2:
        adapter.advance([call])
    call.abort()
    checkpoint = Checkpoint.from_bytes(Checkpoint("f", (state,)).to_bytes())
    other = load(sd)
    again = other.open(batch(other, wanted), lambda *_: None, alone=True, resume=checkpoint.row(0))
    while again.outcome is None:
        other.advance([again])
    assert np.array_equal(raws["r"], sd.expected(wanted))


def truncated(good: Path, file: Path) -> None:
    file.write_bytes(good.read_bytes()[:-100])


def of_another_shape(good: Path, file: Path) -> None:
    """Wrong in the last layer only: the others are in the model by then."""
    weights = load_file(good)
    last = max(name for name in weights if name.startswith("unet") and "lora_B" in name)
    save_file({**weights, last: torch.zeros(7, 2)}, file)


def of_another_family(good: Path, file: Path) -> None:
    save_file({name.replace("unet.", "transformer."): w for name, w in load_file(good).items()}, file)


def of_layers_that_are_not_there(good: Path, file: Path) -> None:
    save_file({name.replace("attn1", "attn9"): w for name, w in load_file(good).items() if "attn1" in name}, file)


def a_control_lora(good: Path, file: Path) -> None:
    save_file({**load_file(good), "transformer.blocks.0.norm_q.weight": torch.ones(4)}, file)


def not_there(good: Path, file: Path) -> None:
    pass


BREAKAGES = (truncated, of_another_shape, of_another_family, of_layers_that_are_not_there, a_control_lora, not_there)


class TestFaults:
    @pytest.mark.parametrize("break_it", BREAKAGES, ids=lambda function: function.__name__)
    def test_a_broken_file_is_named_and_others_do_not_notice(
        self,
        sd: Model,
        load: Callable[..., StepPipeline],
        raws: dict[str, Floats],
        tmp_path: Path,
        break_it: Callable[[Path, Path], None],
    ) -> None:
        file = tmp_path / "bad.safetensors"
        good = write_lora(testing_pipelines.stable_diffusion(), ("unet",), tmp_path / "good.safetensors", seed=1)
        break_it(good, file)
        adapter = load(sd, loras={**sd.loras, "bad": str(file)})
        bad = sd.family.request("bad", loras=((INK, 1.0), ("bad", 1.0)))
        for one in sd.requests(SETS[:2]):
            with pytest.raises(ModelError, match=rf"cannot load lora bad of .* from {file}: .+"):
                adapter.run(batch(adapter, bad), lambda *_: None)
            with pytest.raises(ModelError, match="cannot load lora bad"):
                adapter.open(batch(adapter, bad), lambda *_: None, alone=False)
            serve(adapter, [one])
            assert np.array_equal(raws[one.request_id], sd.expected(one))
        assert "bad" not in adapter._loras.loaded
        good.replace(file)
        (outcome,) = adapter.run(batch(adapter, bad), lambda *_: None)
        assert isinstance(outcome, Output), "a file that is mended needs no restart"

    def test_pickled_weights_are_refused_until_allowed(
        self, sd: Model, load: Callable[..., StepPipeline], raws: dict[str, Floats], tmp_path: Path
    ) -> None:
        file = tmp_path / "ink.bin"
        torch.save(load_file(sd.loras[INK]), file)
        wanted = sd.family.request("a", loras=SETS[1])
        for source in (str(file), str(tmp_path)):
            adapter = load(sd, mode="request", loras={INK: source})
            with pytest.raises(ModelError, match=r"\.safetensors"):
                adapter.run(batch(adapter, wanted), lambda *_: None)
            allowed = load(sd, mode="request", loras={INK: source}, allow_pickle=True)
            allowed.run(batch(allowed, wanted), lambda *_: None)
            assert np.array_equal(raws["a"], sd.expected(wanted))

    def test_a_pipeline_without_lora_says_so_when_it_loads(self, tmp_path: Path) -> None:
        testing_pipelines.audioldm2().save_pretrained(tmp_path)
        adapter = StepPipeline(EngineConfig(model=str(tmp_path), num_threads=1, loras={INK: "/x/ink.safetensors"}))
        with pytest.raises(ModelLoadError, match="AudioLDM2Pipeline takes no LoRA"):
            adapter.load()
        adapter.close()

    @pytest.mark.parametrize("changes", [{"compile": True}, {"offload": "model"}])
    def test_what_cannot_be_combined(self, sd: Model, changes: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="loras cannot be combined"):
            sd.config(**changes)


@pytest.mark.parametrize("mode", ["request", "step"])
def test_in_the_engine_a_request_that_fails_takes_nobody_along(sd: Model, mode: str, tmp_path: Path) -> None:
    config = sd.config(mode=mode, max_batch_rows=8, loras={**sd.loras, "gone": str(tmp_path / "gone.safetensors")})
    bad = [sd.family.request("x", loras=(("gone", 1.0),)), sd.family.request("y", loras=(("chalk", 1.0),))]
    wanted = sd.requests([*SETS, *SETS])
    with DiffusionEngine.make_engine(config) as engine:
        engine.pause()
        streams = [engine.submit(one) for one in (*wanted[:6], *bad, *wanted[6:])]
        engine.resume()
        ends = {end.request_id: end for end in (stream.result(SOON_S) for stream in streams)}
    x, y = ends["x"], ends["y"]
    assert isinstance(x, Failed)
    assert isinstance(y, Failed)
    assert (x.error_type, y.error_type) == ("model_error", "invalid_request")
    assert "cannot load lora gone" in x.message
    assert x.traceback is None
    for one in wanted:
        end = ends[one.request_id]
        assert isinstance(end, Completed), end
        expected = (model_pixels := sd.expected(one) * 255).round()
        assert model_pixels.max() > 0
        assert np.abs(end.media[0].pixels - expected).max() <= 1

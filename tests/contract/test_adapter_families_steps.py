"""Step mode of every family: three requests of different prompt, steps and guidance, joined, against each alone."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import DiffusionRequest, EngineConfig, testing_pipelines
from engine.adapter import Capabilities
from engine.adapters.row_rules import SEES_PADDING
from engine.adapters.stepwise import StepPipeline
from tests.contract.families import FAMILIES, PROMPTS, Family
from tests.contract.serving import Floats, denoised, difference, one_row, open_gang, run_alone, serve, serve_calls

pytestmark = pytest.mark.usefixtures("one_thread")

#: forwards of the denoiser for one step, where there is more than one: conditioned and not, or a control net first
CALLS_A_STEP = {"stable_diffusion_controlnet": 2, "qwen_image": 2, "wan": 2, "wan_image_to_video": 2}


#: of the range 0 to 1: some roundings of 2^-8, which sums of another order move
BF16_TOLERANCE = 2**-5


class Model:
    """A random pipeline loaded for step mode, and what each row was before it was rounded."""

    def __init__(self, name: str, folder: Path) -> None:
        self.family: Family = FAMILIES[name]
        getattr(testing_pipelines, name)().save_pretrained(folder)
        self.folder = str(folder)
        self.adapter = StepPipeline(self.config())
        self.capabilities: Capabilities = self.adapter.load()

    def config(self, **changes: Any) -> EngineConfig:
        return EngineConfig(**{"model": self.folder, "num_threads": 1, "mode": "step", **changes})


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


def requests(family: Family) -> list[DiffusionRequest]:
    return [
        family.request("r0", PROMPTS[0], seed=1, num_inference_steps=2),
        family.request("r1", PROMPTS[1], seed=2, num_inference_steps=3, guidance_scale=6.0),
        family.request("r2", PROMPTS[3], seed=3, num_inference_steps=4, guidance_scale=3.0),
    ]


def test_it_loads_in_step_mode_and_says_why(model: Model) -> None:
    assert model.capabilities.mode == "step"
    assert "the calls of different requests merge" in model.capabilities.mode_reason


def test_joined_rows_are_what_they_are_alone(model: Model, raws: dict[str, Floats]) -> None:
    wanted = requests(model.family)
    alone = {}
    for one in wanted:
        run_alone(model.adapter, one)
        alone[one.request_id] = raws[one.request_id]
    forwards = denoised(serve(model.adapter, wanted))
    for one in wanted:
        assert difference(model.family, alone[one.request_id], raws[one.request_id]) <= model.family.tolerance
    name = next(name for name, family in FAMILIES.items() if family is model.family)
    assert max(forwards) == 3
    # 9 row steps, which a pipeline of its own each would need; joined, the longest's 4 and a few to fall in.
    assert len(forwards) <= 5 * CALLS_A_STEP.get(name, 1) + 1


@pytest.mark.parametrize("name", ["stable_diffusion", "qwen_image"])
def test_joined_rows_in_bfloat16_differ_by_its_rounding_only(
    name: str, models: Callable[[str], Model], raws: dict[str, Floats]
) -> None:
    """All families are measured by `bench.families`; the worst of them is within the bound."""
    family, adapter = FAMILIES[name], StepPipeline(models(name).config(dtype="bfloat16"))
    adapter.load()
    alone = {}
    for one in requests(family):
        run_alone(adapter, one)
        alone[one.request_id] = raws[one.request_id]
    assert max(denoised(serve(adapter, requests(family)))) == 3
    adapter.close()
    assert max(difference(family, alone[one], raws[one]) for one in alone) <= BF16_TOLERANCE


def test_equal_requests_in_one_call_are_what_they_are_alone(model: Model, raws: dict[str, Floats]) -> None:
    """Now all together and now one by one, beside a request of other steps that shares their forwards."""
    assert model.adapter.has_gangs
    prompts = (
        (PROMPTS[1],) * 3 if model.capabilities.model_class in SEES_PADDING else (PROMPTS[0], PROMPTS[1], PROMPTS[3])
    )
    gang = [model.family.request(f"g{k}", prompt, seed=k, num_inference_steps=3) for k, prompt in enumerate(prompts)]
    other = model.family.request("other", PROMPTS[1], seed=9, num_inference_steps=4, guidance_scale=3.0)
    alone = {}
    for one in (*gang, other):
        run_alone(model.adapter, one)
        alone[one.request_id] = raws.pop(one.request_id)
    calls = open_gang(model.adapter, gang)
    single = model.adapter.open(one_row(model.adapter, other), lambda *_: None, alone=False)
    forwards = serve_calls(model.adapter, [*calls, single], at_most=(8, 8, 1, 2))
    assert max(forwards) == 4
    for one in (*gang, other):
        assert difference(model.family, alone[one.request_id], raws[one.request_id]) <= model.family.tolerance


def test_held_but_not_merged_it_is_plain_diffusers_to_the_last_bit(model: Model, raws: dict[str, Floats]) -> None:
    wanted = requests(model.family)[:2]
    alone = {}
    for one in wanted:
        run_alone(model.adapter, one)
        alone[one.request_id] = raws[one.request_id]
    serve(model.adapter, wanted, alone=True)
    for one in wanted:
        assert np.array_equal(alone[one.request_id], raws[one.request_id])


def test_a_resumed_row_is_equal_to_the_last_bit(model: Model, raws: dict[str, Floats]) -> None:
    """From the state after its second step; the model is asked for the others only."""
    from engine import Checkpoint

    wanted = model.family.request("r", PROMPTS[1], seed=5, num_inference_steps=4)
    serve(model.adapter, [wanted], alone=True)
    expected = raws["r"]
    call = model.adapter.open(one_row(model.adapter, wanted), lambda *_: None, alone=True)
    while (state := call.state()) is None or state.step < 2:
        model.adapter.advance([call])
    call.abort()
    checkpoint = Checkpoint.from_bytes(Checkpoint("f", (state,)).to_bytes())
    again = model.adapter.open(one_row(model.adapter, wanted), lambda *_: None, alone=True, resume=checkpoint.row(0))
    num_forwards = 0
    while again.outcome is None:
        num_forwards += again.stage == "denoising"
        model.adapter.advance([again])
    name = next(name for name, family in FAMILIES.items() if family is model.family)
    assert num_forwards == 2 * CALLS_A_STEP.get(name, 1)
    assert np.array_equal(raws["r"], expected)


def test_the_page_names_every_family() -> None:
    page = (Path(__file__).parents[2] / "docs" / "families.md").read_text("utf-8")
    assert [name for name in FAMILIES if f"| `{name}` |" not in page] == []

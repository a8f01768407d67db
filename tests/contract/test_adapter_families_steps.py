"""Step mode of every family: three requests of different prompt, steps and guidance, joined, against each alone."""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import DiffusionRequest, EngineConfig, testing_pipelines
from engine.adapter import Capabilities, Output, RowCall
from engine.adapters import whole
from engine.adapters.stepwise import StepPipeline
from engine.batch import Batch
from engine.request import Row
from tests.contract.families import FAMILIES, PROMPTS, Family

Floats = np.ndarray[Any, Any]
#: forwards of the denoiser for one step, where there is more than one: conditioned and not, or a control net first
CALLS_A_STEP = {"stable_diffusion_controlnet": 2, "qwen_image": 2, "wan": 2, "wan_image_to_video": 2}


class Model:
    """A random pipeline loaded for step mode, and what each row was before it was rounded."""

    def __init__(self, name: str, folder: Path) -> None:
        self.family: Family = FAMILIES[name]
        getattr(testing_pipelines, name)().save_pretrained(folder)
        self.adapter = StepPipeline(EngineConfig(model=str(folder), num_threads=1, mode="step"))
        self.capabilities: Capabilities = self.adapter.load()

    def batch(self, wanted: DiffusionRequest) -> Batch:
        return Batch(self.adapter.batch_key(wanted), (Row(wanted, 0),))

    def together(self, wanted: Sequence[DiffusionRequest], *, alone: bool = False) -> "Run":
        """As the engine serves them: one group a turn, longest unserved first."""
        calls: list[RowCall] = [self.adapter.open(self.batch(one), lambda *_: None, alone=alone) for one in wanted]
        served: dict[int, int] = {}
        forwards: list[tuple[str, int]] = []
        while waiting := [call for call in calls if call.outcome is None]:
            groups: dict[Any, list[RowCall]] = {}
            for call in waiting:
                groups.setdefault(call.key, []).append(call)
            group = min(groups.values(), key=lambda group: min(served.get(id(call), 0) for call in group))
            forwards.append((group[0].stage, len(group)))
            served.update((id(call), len(forwards)) for call in group)
            self.adapter.advance(group)
        assert all(isinstance(call.outcome, Output) for call in calls), [call.outcome for call in calls]
        return Run(forwards)


@dataclass(frozen=True)
class Run:
    forwards: Sequence[tuple[str, int]]

    @property
    def denoised(self) -> list[int]:
        return [num_calls for stage, num_calls in self.forwards if stage == "denoising"]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Model]]:
    made: dict[str, Model] = {}

    def get(name: str) -> Model:
        if name not in made:
            made[name] = Model(name, tmp_path_factory.mktemp(name))
        return made[name]

    yield get
    gc.freeze()  # each close collects garbage, and to look through all that torch has imported takes half a second
    for model in made.values():
        model.adapter.close()
    gc.unfreeze()


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest, models: Callable[[str], Model]) -> Model:
    return models(request.param)


@pytest.fixture
def raws(monkeypatch: pytest.MonkeyPatch) -> dict[str, Floats]:
    """Each row as the pipeline gave it, by its request's id."""
    seen: dict[str, Floats] = {}
    made = whole.media

    def watched(raw: Any, row: Row, pipeline: Any) -> Any:
        seen[row.request.request_id] = np.array(raw, dtype=np.float64)
        return made(raw, row, pipeline)

    monkeypatch.setattr(whole, "media", watched)
    return seen


def requests(family: Family) -> list[DiffusionRequest]:
    return [
        family.request("r0", PROMPTS[0], seed=1, num_inference_steps=2),
        family.request("r1", PROMPTS[1], seed=2, num_inference_steps=3, guidance_scale=6.0),
        family.request("r2", PROMPTS[3], seed=3, num_inference_steps=4, guidance_scale=3.0),
    ]


def difference(family: Family, one: Floats, other: Floats) -> float:
    """In units of the range 0 to 1, or of the loudest sample."""
    scale = float(np.abs(one).max()) if "duration_s" in family.params else 1.0
    return float(np.abs(one - other).max()) / scale


def test_it_loads_in_step_mode_and_says_why(model: Model) -> None:
    assert model.capabilities.mode == "step"
    assert "the calls of different requests merge" in model.capabilities.mode_reason


def test_joined_rows_are_what_they_are_alone(model: Model, raws: dict[str, Floats]) -> None:
    wanted = requests(model.family)
    alone = {}
    for one in wanted:
        (outcome,) = model.adapter.run(model.batch(one), lambda *_: None)
        assert isinstance(outcome, Output)
        alone[one.request_id] = raws[one.request_id]
    run = model.together(wanted)
    for one in wanted:
        assert difference(model.family, alone[one.request_id], raws[one.request_id]) <= model.family.tolerance
    name = next(name for name, family in FAMILIES.items() if family is model.family)
    assert max(run.denoised) == 3
    # 9 row steps, which a pipeline of its own each would need; joined, the longest's 4 and a few to fall in.
    assert len(run.denoised) <= 5 * CALLS_A_STEP.get(name, 1) + 1


def test_held_but_not_merged_it_is_plain_diffusers_to_the_last_bit(model: Model, raws: dict[str, Floats]) -> None:
    wanted = requests(model.family)[:2]
    alone = {}
    for one in wanted:
        model.adapter.run(model.batch(one), lambda *_: None)
        alone[one.request_id] = raws[one.request_id]
    model.together(wanted, alone=True)
    for one in wanted:
        assert np.array_equal(alone[one.request_id], raws[one.request_id])


def test_a_resumed_row_is_equal_to_the_last_bit(model: Model, raws: dict[str, Floats]) -> None:
    """From the state after its second step; the model is asked for the others only."""
    from engine import Checkpoint

    wanted = model.family.request("r", PROMPTS[1], seed=5, num_inference_steps=4)
    model.together([wanted], alone=True)
    expected = raws["r"]
    call = model.adapter.open(model.batch(wanted), lambda *_: None, alone=True)
    while (state := call.state()) is None or state.step < 2:
        model.adapter.advance([call])
    call.abort()
    checkpoint = Checkpoint.from_bytes(Checkpoint("f", (state,)).to_bytes())
    again = model.adapter.open(model.batch(wanted), lambda *_: None, alone=True, resume=checkpoint.row(0))
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

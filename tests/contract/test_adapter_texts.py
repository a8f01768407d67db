"""Step mode: a text that was encoded before is not encoded again, and the picture is the same to the last bit."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch

from engine import DiffusionRequest, EngineConfig, testing_pipelines
from engine.adapter import Output, RowCall
from engine.adapters.stepwise import StepPipeline
from engine.batch import Batch
from engine.params import Loras
from engine.request import Row
from tests.contract.families import FAMILIES, PROMPTS
from tests.contract.loras import write_lora

Floats = np.ndarray[Any, Any]
INK: Loras = (("ink", 1.0),)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def get(family: str) -> Path:
        if family not in made:
            made[family] = tmp_path_factory.mktemp(family)
            getattr(testing_pipelines, family)().save_pretrained(made[family])
        return made[family]

    return get


@pytest.fixture
def load(folder: Callable[[str], Path]) -> Iterator[Callable[..., StepPipeline]]:
    torch.set_num_threads(1)
    loaded: list[StepPipeline] = []

    def get(family: str, **changes: Any) -> StepPipeline:
        base = {"model": str(folder(family)), "num_threads": 1, "mode": "step", "prompt_cache_mb": 8}
        loaded.append(StepPipeline(EngineConfig(**{**base, **changes})))
        loaded[-1].load()
        return loaded[-1]

    yield get
    for adapter in loaded:
        adapter.close()


def encoded(adapter: StepPipeline, *wanted: DiffusionRequest, alone: bool = False) -> int:
    """Serve them together; how often a text encoder worked for it."""
    assert adapter._rendezvous is not None
    forwards: list[str] = []
    sites = [site for site in adapter._rendezvous.sites if site.name.startswith("text_encoder")]
    originals = [site.original for site in sites]

    def counting(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            forwards.append(name)
            return original(*args, **kwargs)

        return counted

    for site in sites:
        site.original = counting(site.original, site.name)
    calls: list[RowCall] = [
        adapter.open(Batch(adapter.batch_key(one), (Row(one, 0),)), lambda *_: None, alone=alone) for one in wanted
    ]
    while waiting := [call for call in calls if call.outcome is None]:
        key = waiting[0].key
        adapter.advance([call for call in waiting if call.key == key])
    for site, original in zip(sites, originals, strict=True):
        site.original = original
    assert all(isinstance(call.outcome, Output) for call in calls), [call.outcome for call in calls]
    return len(forwards)


@pytest.mark.parametrize(
    ("family", "num_texts", "num_prompts"), [("stable_diffusion", 2, 1), ("stable_diffusion_xl", 4, 2), ("flux", 2, 2)]
)
def test_the_same_texts_are_encoded_once(
    load: Callable[..., StepPipeline],
    folder: Callable[[str], Path],
    raws: dict[str, Floats],
    family: str,
    num_texts: int,
    num_prompts: int,
) -> None:
    """Negative prompts included, which all have in common."""
    adapter = load(family)
    plain = diffusers.DiffusionPipeline.from_pretrained(folder(family))
    plain.set_progress_bar_config(disable=True)
    wanted = [FAMILIES[family].request(f"r{i}", PROMPTS[1], seed=i) for i in range(4)]
    assert encoded(adapter, wanted[0]) == num_texts
    assert encoded(adapter, wanted[1]) == 0
    assert encoded(adapter, wanted[2], alone=True) == 0
    for one in wanted[:3]:
        assert np.array_equal(raws[one.request_id], FAMILIES[family].call(plain, one))
    assert encoded(adapter, FAMILIES[family].request("other", PROMPTS[3])) == num_prompts
    assert encoded(adapter, wanted[3], wanted[0]) == 0


def test_rows_that_arrive_together_with_one_text_encode_it_once(load: Callable[..., StepPipeline]) -> None:
    adapter = load("stable_diffusion")
    same = [FAMILIES["stable_diffusion"].request(f"r{i}", PROMPTS[1], seed=i) for i in range(3)]
    assert encoded(adapter, *same) == 2
    adapter._texts._max_bytes = 100
    adapter._texts._answers.clear()
    assert encoded(adapter, *same) == 4, "too large to be kept: the first alone, the others merged"


def test_what_was_encoded_in_company_is_not_given_again(
    load: Callable[..., StepPipeline], raws: dict[str, Floats]
) -> None:
    """Merged, it may be off by rounding."""
    adapter, fresh = load("stable_diffusion"), load("stable_diffusion", prompt_cache_mb=0)
    wanted = [FAMILIES["stable_diffusion"].request(f"r{i}", PROMPTS[i], seed=i) for i in range(2)]
    encoded(adapter, *wanted)
    assert encoded(adapter, wanted[0]) == 1, "the negative prompt was the same for both"
    again = raws["r0"]
    assert encoded(fresh, wanted[0]) == 2
    assert np.array_equal(again, raws["r0"])


def test_each_adapter_set_has_its_own_texts(
    load: Callable[..., StepPipeline], raws: dict[str, Floats], tmp_path: Path
) -> None:
    pipeline = testing_pipelines.stable_diffusion()
    file = write_lora(pipeline, ("text_encoder",), tmp_path / "ink.safetensors", seed=1)
    oil = write_lora(pipeline, ("unet",), tmp_path / "oil.safetensors", seed=2)
    adapter = load("stable_diffusion", loras={"ink": str(file), "oil": str(oil)}, max_loras=1)
    plain, ink = (FAMILIES["stable_diffusion"].request(name, loras=loras) for name, loras in (("p", ()), ("i", INK)))
    assert [encoded(adapter, one) for one in (plain, ink, plain, ink)] == [2, 2, 0, 0]
    assert np.abs(raws["p"] - raws["i"]).max() > 1e-3
    encoded(adapter, FAMILIES["stable_diffusion"].request("o", loras=(("oil", 1.0),)))
    before = raws["i"]
    write_lora(pipeline, ("text_encoder",), file, seed=3)
    assert encoded(adapter, ink) == 2, "the file may be another since"
    assert np.abs(raws["i"] - before).max() > 1e-3


def test_the_longest_unused_leaves_when_the_room_is_full(load: Callable[..., StepPipeline]) -> None:
    adapter = load("stable_diffusion")
    adapter._texts._max_bytes = 4 * 32 * (32 + 1) * 4  # four texts of 32 tokens with their pooled text
    for prompt, num_forwards in [("a", 2), ("b", 1), ("c", 1), ("a", 0), ("d", 1), ("b", 1), ("a", 0), ("c", 1)]:
        assert encoded(adapter, FAMILIES["stable_diffusion"].request("r", prompt)) == num_forwards, prompt
        assert adapter._texts._num_bytes <= adapter._texts._max_bytes

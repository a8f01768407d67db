"""The law of merged model calls: equal keys always collate, and each call gets back what is its own."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.adapters.merging.call import ModelCall, merged, read_again, read_call, run_calls
from engine.adapters.merging.content import Contents
from engine.adapters.merging.leaves import CannotSplit, Layout, split
from engine.adapters.merging.rendezvous import CallAborted, HeldCall, Rendezvous
from engine.adapters.merging.rules import TextPadding
from engine.adapters.merging.site import Site
from engine.adapters.step_safety import why_not
from engine.config import EngineConfig

TEXT = TextPadding("text", "text_mask", lengths="text_lengths")


class Recorder(torch.nn.Module):
    """A model that answers its rows, doubled, and remembers its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Mapping[str, Any]] = []

    def forward(self, sample: Any, timestep: Any = None, **others: Any) -> Any:
        self.seen.append({"sample": sample, "timestep": timestep, **others})
        if isinstance(sample, list):
            return ([2 * row for row in sample],)
        return (2 * sample, [sample + 1, {"deep": sample - 1}])


def site(module: Recorder | None = None, padded: tuple[TextPadding, ...] = ()) -> Site:
    made = Site.of("unet", module or Recorder(), "forward", "denoising")
    made.padded = padded
    return made


def call(where: Site, **arguments: Any) -> ModelCall:
    return read_call(where, arguments, Contents())


@st.composite
def leaves(draw: st.DrawFn, rows: int) -> Any:
    kind = draw(st.sampled_from(["rows", "table", "plain", "none", "list", "dict", "scalar"]))
    width = draw(st.integers(1, 2))
    match kind:
        case "rows":
            return torch.full((rows, width), float(draw(st.integers(0, 3))))
        case "table":
            return torch.full((rows + 1, width), float(draw(st.integers(0, 1))))
        case "scalar":
            return torch.tensor(float(draw(st.integers(0, 1))))
        case "plain":
            return draw(st.sampled_from([True, 1, 1.0, "x"]))
        case "list":
            return [torch.full((rows, width), 1.0), draw(st.integers(0, 1))]
        case "dict":
            return {"a": torch.full((rows, 1), float(draw(st.integers(0, 3)))), "b": draw(st.sampled_from([None, "y"]))}
    return None


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    rows = draw(st.integers(1, 2))
    tokens = draw(st.integers(1, 3))
    arguments: dict[str, Any] = {
        "sample": torch.arange(float(rows * 2)).reshape(rows, 2) + 10 * draw(st.integers(0, 5)),
        "timestep": draw(st.sampled_from([torch.tensor(3), torch.tensor(7.5), torch.tensor([4])])),
    }
    if draw(st.booleans()):
        arguments["text"] = torch.ones(rows, tokens, 2)
        if draw(st.booleans()):
            arguments["text_mask"] = torch.ones(rows, tokens)
        if draw(st.booleans()):
            arguments["text_lengths"] = draw(st.sampled_from([None, [tokens] * rows]))
    if draw(st.booleans()):
        arguments["other"] = draw(leaves(rows))
    return arguments


@settings(max_examples=300, deadline=None)
@given(drawn=st.lists(calls(), min_size=1, max_size=12))
def test_equal_keys_collate_and_every_call_gets_its_own(drawn: list[dict[str, Any]]) -> None:
    module = Recorder()
    where = site(module, padded=(TEXT,))
    contents = Contents()
    groups: dict[Any, list[ModelCall]] = {}
    for arguments in drawn:
        one = read_call(where, arguments, contents)
        groups.setdefault(one.key, []).append(one)
    for group in groups.values():
        answers = run_calls(group)
        for one, (doubled, (plus, deep)) in zip(group, answers, strict=True):
            sample = one.arguments["sample"]
            assert torch.equal(doubled, 2 * sample)
            assert torch.equal(plus, sample + 1)
            assert torch.equal(deep["deep"], sample - 1)
        if len(group) > 1:
            seen = module.seen[-1]
            num_rows = group[0].layout.rows * len(group)
            assert len(seen["sample"]) == num_rows
            assert seen["timestep"].shape == (num_rows,)
            if "text" in seen:
                assert len(seen["text"]) == num_rows


@settings(max_examples=200, deadline=None)
@given(one=calls(), other=calls(), shared=st.sets(st.sampled_from(["sample", "timestep", "text", "other"])))
def test_reading_again_says_what_reading_says(one: dict[str, Any], other: dict[str, Any], shared: set[str]) -> None:
    where = site(padded=(TEXT,))
    contents = Contents()
    before = read_call(where, one, contents)
    arguments = {**other, **{name: one[name] for name in shared & one.keys() & other.keys()}}
    again = read_again(before, arguments)
    if again is not None:
        fresh = read_call(where, arguments, contents)
        assert (again.key, again.layout, again.padded) == (fresh.key, fresh.layout, fresh.padded)


def test_rows_are_merged_index_major() -> None:
    """So that a model which halves its batch for guidance finds the unconditioned rows first."""
    where = site()
    one = call(where, sample=torch.tensor([[1.0], [2.0]]), timestep=torch.tensor(5))
    other = call(where, sample=torch.tensor([[3.0], [4.0]]), timestep=torch.tensor(9))
    together = merged([one, other])
    assert together["sample"].flatten().tolist() == [1, 3, 2, 4]
    assert together["timestep"].tolist() == [5, 9, 5, 9]


def test_calls_of_different_row_counts_and_sizes_stay_apart() -> None:
    where = site()
    keys = {
        call(where, sample=torch.zeros(rows, side), timestep=torch.tensor(1)).key for rows in (1, 2) for side in (3, 4)
    }
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"img_ids": torch.zeros(4, 3)}, {"img_ids": torch.ones(4, 3)}),
        ({"height": 2}, {"height": 4}),
        ({"flag": True}, {"flag": 1}),
        ({"thing": object()}, {"thing": object()}),
        ({"extra": None}, {}),
        ({"half": torch.zeros(1, 2)}, {"half": torch.zeros(1, 2, dtype=torch.float16)}),
    ],
    ids=["tables by content", "numbers", "kinds", "objects by identity", "presence", "dtype"],
)
def test_what_must_be_equal_is_in_the_key(one: dict[str, Any], other: dict[str, Any]) -> None:
    where = site()
    assert call(where, sample=torch.zeros(1, 2), **one).key != call(where, sample=torch.zeros(1, 2), **other).key


def test_a_table_is_no_row_even_where_its_side_says_so() -> None:
    where = site()
    one = call(where, sample=torch.zeros(2, 2), img_ids=torch.zeros(2, 3))
    other = call(where, sample=torch.ones(2, 2), img_ids=torch.zeros(2, 3))
    assert one.key == other.key
    assert merged([one, other])["img_ids"].shape == (2, 3)


def test_texts_are_padded_where_the_model_masks() -> None:
    where = site(padded=(TEXT,))
    one = call(where, sample=torch.zeros(1, 2), text=torch.ones(1, 2, 4), text_lengths=[2])
    other = call(where, sample=torch.zeros(1, 2), text=torch.ones(1, 3, 4), text_lengths=[3])
    assert one.key == other.key
    together = merged([one, other])
    assert together["text"].shape == (2, 3, 4)
    assert together["text_mask"].tolist() == [[True, True, False], [True, True, True]]


def test_lists_are_rows_only_for_a_model_that_takes_lists() -> None:
    where = site()
    one = call(where, sample=[torch.zeros(2), torch.zeros(3)], timestep=torch.tensor(1))
    other = call(where, sample=[torch.ones(5), torch.ones(2)], timestep=torch.tensor(2))
    assert one.key == other.key
    assert [len(row) for row in merged([one, other])["sample"]] == [2, 5, 3, 2]
    ((first,), (second,)) = run_calls([one, other])
    assert [len(row) for row in first] == [2, 3]
    assert [len(row) for row in second] == [5, 2]


def test_an_output_without_rows_cannot_be_split() -> None:
    with pytest.raises(CannotSplit, match="shape"):
        split((torch.zeros(3, 2),), [Layout(1)] * 2)
    with pytest.raises(CannotSplit, match="object"):
        split((object(),), [Layout(1)] * 2)


class TestHolding:
    def hold(self, function: Any, module: Recorder, **options: Any) -> tuple[HeldCall, Rendezvous]:
        rendezvous = Rendezvous([Site.of("unet", module, "forward", "denoising")])
        held = HeldCall(function, **options)
        held.step()
        return held, rendezvous

    def test_a_call_is_held_and_goes_on_with_its_answer(self) -> None:
        module = Recorder()
        held, rendezvous = self.hold(lambda: module(torch.zeros(1, 2), timestep=torch.tensor(1)), module)
        assert held.call is not None
        assert module.seen == []
        held.step("answer")
        assert (held.call, held.result) == (None, "answer")
        rendezvous.close()

    def test_others_go_straight_through_and_so_does_autocast(self) -> None:
        module = Recorder()

        def under_autocast() -> Any:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return module(torch.zeros(1, 2))

        held, rendezvous = self.hold(under_autocast, module)
        assert held.call is None
        assert len(module.seen) == 1
        module(torch.zeros(1, 2))
        assert len(module.seen) == 2
        rendezvous.close()
        assert "forward" not in vars(module)

    def test_an_abort_unwinds_the_function(self) -> None:
        module, unwound = Recorder(), []

        def careful() -> None:
            try:
                module(torch.zeros(1, 2))
            finally:
                unwound.append(True)

        held, rendezvous = self.hold(careful, module)
        held.abort()
        held.abort()
        assert isinstance(held.raised, CallAborted)
        assert unwound == [True]
        rendezvous.close()

    def test_modes_of_torch_are_those_of_the_thread(self) -> None:
        """A function that leaves `no_grad` while others are held must not switch gradients on for them."""
        module, modes = Recorder(), []

        def drawing() -> None:
            with torch.no_grad():
                module(torch.zeros(1, 2))
            module(torch.zeros(1, 2))
            modes.append(torch.is_inference_mode_enabled())

        with torch.inference_mode():
            rendezvous = Rendezvous([Site.of("unet", module, "forward", "denoising")])
            both = [HeldCall(drawing) for _ in range(2)]
            for held in both:
                held.step()
            for _ in range(2):
                for held in both:
                    held.step("answer")
            rendezvous.close()
        assert modes == [True, True]

    def test_what_is_compiled_is_behind_the_door(self, monkeypatch: pytest.MonkeyPatch) -> None:
        compiled: list[Any] = []
        monkeypatch.setattr(torch, "compile", lambda function: compiled.append(function) or function)
        module = Recorder()
        made = Site.of("unet", module, "forward", "denoising", compiled=True)
        assert compiled == [made.original]
        assert module._compiled_call_impl is None


def test_a_step_cache_is_refused() -> None:
    from engine import testing_pipelines

    pipeline = testing_pipelines.stable_diffusion()
    config = EngineConfig(model="x")
    assert why_not(pipeline, config, accepts_generator=True) is None
    assert "no generator" in str(why_not(pipeline, config, accepts_generator=False))
    pipeline.unet.is_cache_enabled = True
    assert "step cache" in str(why_not(pipeline, config, accepts_generator=True))

"""StepScheduler alone: who joins, who is served, who makes room. No clock runs and no model is called."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import DiffusionRequest, SamplingParams
from engine.batch_key import BatchKey
from engine.result import Stage
from engine.scheduler import SchedulerPolicy
from engine.step_scheduler import Slot, StepScheduler

KEY = BatchKey(task="text2image", height=8, width=8, num_inference_steps=4, guidance_scale=1.0, has_negative=False)


def request(name: str, *, num_outputs: int = 1, exact: bool = False, **changes: Any) -> DiffusionRequest:
    params = SamplingParams(height=8, width=8, seed=0, num_outputs=num_outputs, exact=exact)
    return DiffusionRequest(request_id=name, prompt=name, params=params, **changes)


class Desk:
    """A scheduler with the runner's part played by hand."""

    def __init__(self, max_rows: int = 4, places_a_row: int = 1, **policy: Any) -> None:
        self.scheduler = StepScheduler(SchedulerPolicy(max_rows=max_rows, places_a_row=places_a_row, **policy))
        self.now = 0.0

    def submit(self, *requests: DiffusionRequest) -> None:
        for one in requests:
            self.scheduler.submit(one, KEY, self.now)

    def join(self, key: str = "k", stage: Stage = "denoising") -> list[str]:
        """Names of those that start; each stands before a call of `key`."""
        started = self.scheduler.join()
        for slot in started:
            slot.key, slot.stage = key, stage
        return names(started)

    def choose(self) -> list[str]:
        return names(self.scheduler.choose())

    def slot(self, name: str) -> Slot:
        return next(slot for slot in self.scheduler.running if slot.request.request_id == name)

    def leave(self, name: str) -> None:
        self.scheduler.leave(self.slot(name))

    @property
    def active(self) -> list[str]:
        return names(self.scheduler.active)


def names(slots: Sequence[Slot]) -> list[str]:
    return [slot.request.request_id for slot in slots]


@pytest.fixture
def desk() -> Desk:
    return Desk()


class TestJoining:
    def test_up_to_max_rows_in_order_of_rank(self, desk: Desk) -> None:
        desk.submit(request("low", priority=1), request("a"), request("b"), request("high", priority=9), request("c"))
        assert desk.join() == ["high", "a", "b", "c"]
        assert desk.join() == []
        assert desk.scheduler.waiting_rows == 1

    def test_a_place_is_taken_as_soon_as_it_is_free(self, desk: Desk) -> None:
        desk.submit(*(request(name) for name in "abcde"))
        desk.join()
        desk.leave("b")
        assert desk.join() == ["e"]

    def test_outputs_are_rows_and_join_one_by_one(self) -> None:
        desk = Desk(max_rows=2)
        desk.submit(request("a", num_outputs=3), request("b"))
        assert desk.join() == ["a", "a"]
        desk.leave("a")
        assert desk.join() == ["a"]
        desk.leave("a")
        assert desk.join() == ["b"]

    def test_a_removed_request_starts_no_more_rows(self) -> None:
        desk = Desk(max_rows=1)
        wanted = request("a", num_outputs=3)
        desk.submit(wanted, request("b"))
        desk.join()
        desk.scheduler.remove(wanted)
        desk.leave("a")
        assert desk.join() == ["b"]


class TestSolo:
    def test_it_waits_for_an_empty_device_and_nobody_passes_it(self, desk: Desk) -> None:
        desk.submit(request("a"))
        desk.join()
        desk.submit(request("s", solo=True), request("b"))
        assert desk.join() == []
        desk.leave("a")
        assert desk.join() == ["s"]
        assert desk.join() == []
        desk.leave("s")
        assert desk.join() == ["b"]

    def test_a_held_row_goes_on_before_it(self) -> None:
        desk = Desk(max_rows=1)
        desk.submit(request("a", priority=0))
        desk.join()
        desk.submit(request("b", priority=9))
        desk.join()
        desk.submit(request("s", solo=True, priority=9))
        desk.leave("b")
        assert desk.join() == []
        assert desk.active == ["a"]
        desk.leave("a")
        assert desk.join() == ["s"]

    def test_exact_is_no_barrier(self, desk: Desk) -> None:
        desk.submit(request("a"), request("e", exact=True), request("b"))
        assert desk.join() == ["a", "e", "b"]


class TestPreemption:
    def test_a_higher_priority_takes_the_place_of_the_lowest(self) -> None:
        desk = Desk(max_rows=2)
        desk.submit(request("a", priority=5), request("b", priority=2))
        desk.join()
        desk.submit(request("c", priority=9))
        assert desk.join() == ["c"]
        assert sorted(desk.active) == ["a", "c"]
        assert "b" not in desk.choose()
        desk.leave("c")
        assert desk.join() == []
        assert sorted(desk.active) == ["a", "b"]

    def test_equals_never_do(self) -> None:
        desk = Desk(max_rows=1)
        desk.submit(request("a"))
        desk.join()
        desk.submit(request("b"))
        assert desk.join() == []

    def test_a_row_that_waited_long_is_not_pushed_aside(self) -> None:
        desk = Desk(max_rows=1, ageing_s=10)
        desk.submit(request("a", priority=5))
        desk.join()
        desk.now = 100.0  # ten levels later
        desk.submit(request("b", priority=9))
        assert desk.join() == []

    def test_held_rows_are_bounded(self) -> None:
        desk = Desk(max_rows=2)
        for priority in range(10):
            desk.submit(*(request(f"{priority}{i}", priority=priority) for i in range(2)))
            desk.join()
        assert len(desk.scheduler.running) == 4


class TestPlaces:
    def test_more_rows_than_a_forward_takes_may_be_under_way(self) -> None:
        desk = Desk(max_rows=2, places_a_row=2)
        desk.submit(*(request(name) for name in "abcde"))
        assert desk.join() == ["a", "b", "c", "d"]
        assert desk.choose() == ["a", "b"]

    def test_they_shrink_with_the_forward(self) -> None:
        desk = Desk(max_rows=8, places_a_row=2)
        desk.scheduler.limit(2)
        desk.submit(*(request(name) for name in "abcde"))
        assert desk.join() == ["a", "b", "c", "d"]

    def test_who_allows_one_row_has_one_at_a_time(self) -> None:
        desk = Desk(max_rows=1, places_a_row=2)
        desk.submit(request("a"), request("b"))
        assert desk.join() == ["a"]


class TestService:
    def test_the_group_with_most_to_gain_is_served(self, desk: Desk) -> None:
        desk.submit(*(request(name) for name in "abc"))
        desk.join()
        desk.slot("b").key = "other"
        assert desk.choose() == ["a", "c"]
        desk.slot("b").left = 1  # 1 is more than 1/4 + 1/4
        assert desk.choose() == ["b"]

    def test_of_a_group_those_that_end_first(self) -> None:
        desk = Desk(max_rows=2, places_a_row=2)
        desk.submit(*(request(name) for name in "abcd"))
        desk.join()
        desk.slot("b").left, desk.slot("d").left = 2, 1
        assert desk.choose() == ["d", "b"]

    def test_each_level_of_priority_counts_as_half_the_steps(self, desk: Desk) -> None:
        desk.submit(request("a", priority=5), request("b", priority=5), request("c", priority=7))
        desk.join()
        desk.slot("c").key = "other"
        assert desk.choose() == ["c"]

    @pytest.mark.parametrize("max_unserved", [0, 1, 5])
    def test_nobody_is_left_out_for_long(self, max_unserved: int) -> None:
        desk = Desk(max_unserved=max_unserved)
        desk.submit(*(request(name) for name in "abc"))
        desk.join()
        desk.slot("b").key = "other"
        turns = [desk.choose() for _ in range(max_unserved + 2)]
        assert turns == [["a", "c"]] * (max_unserved + 1) + [["b"]]

    def test_who_was_left_out_is_in_the_forward_of_its_group(self) -> None:
        desk = Desk(max_rows=2, places_a_row=2, max_unserved=2)
        desk.submit(*(request(name) for name in "abc"))
        desk.join()
        turns = [desk.choose() for _ in range(4)]
        assert turns == [["a", "b"], ["a", "b"], ["a", "b"], ["c", "a"]]

    def test_between_two_calls_of_other_stages_a_denoising_group_has_its_turn(self, desk: Desk) -> None:
        desk.submit(request("a"), request("b"))
        desk.join()
        desk.submit(request("c"), request("d"))
        desk.join(key="text", stage="encoding")
        desk.slot("d").key = "text 2"
        assert [desk.choose() for _ in range(6)] == [["c"], ["a", "b"], ["d"], ["a", "b"], ["c"], ["a", "b"]]

    def test_rows_decode_one_at_a_time_while_others_denoise_and_together_when_none_do(self, desk: Desk) -> None:
        desk.submit(*(request(name) for name in "abc"))
        desk.join(key="vae", stage="decoding")
        desk.slot("a").key, desk.slot("a").stage = "k", "denoising"
        assert [desk.choose() for _ in range(4)] == [["b"], ["a"], ["c"], ["a"]]
        desk.leave("a")
        assert desk.choose() == ["b", "c"]

    def test_a_bound_on_a_key_splits_its_group(self, desk: Desk) -> None:
        desk.submit(*(request(name) for name in "abcd"))
        desk.join()
        desk.scheduler.bound("k", 3)
        assert desk.choose() == ["a", "b", "c"]
        desk.scheduler.bound("k", 8)
        assert desk.choose() == ["a", "b", "c"]

    def test_a_row_set_apart_has_a_forward_of_its_own_and_at_once(self, desk: Desk) -> None:
        desk.submit(*(request(name) for name in "abc"))
        desk.join()
        desk.slot("b").apart = True
        assert desk.choose() == ["b"]
        desk.slot("b").apart = False
        assert desk.choose() == ["a", "b", "c"]

    def test_nothing_to_serve(self, desk: Desk) -> None:
        assert desk.choose() == []


@st.composite
def keys(draw: st.DrawFn) -> list[str]:
    return draw(st.lists(st.sampled_from("wxyz"), min_size=1, max_size=8))


@settings(deadline=None)
@given(
    keys=keys(),
    lefts=st.lists(st.integers(1, 50), min_size=8, max_size=8),
    next_key=st.functions(like=lambda n: ..., returns=st.sampled_from("wxyz"), pure=True),
    max_rows=st.integers(1, 4),
    max_unserved=st.integers(0, 9),
)
def test_nobody_starves(
    keys: list[str], lefts: list[int], next_key: Callable[[int], str], max_rows: int, max_unserved: int
) -> None:
    """Whatever calls the rows stand before and however much is left of each: an odd one neither starves nor blocks."""
    desk = Desk(max_rows=max_rows, places_a_row=8, max_unserved=max_unserved)
    desk.submit(*(request(str(i)) for i in range(len(keys))))
    desk.join()
    last = {slot.request.request_id: 0 for slot in desk.scheduler.running}
    for slot in desk.scheduler.running:
        number = int(slot.request.request_id)
        slot.key, slot.left = keys[number], lefts[number]
    for turn in range(1, 60):
        served = desk.choose()
        assert 0 < len(served) <= max_rows
        assert len({desk.slot(name).key for name in served}) == 1
        for name in served:
            last[name] = turn
            desk.slot(name).key = next_key(turn * 100 + int(name))
        assert max(turn - when for when in last.values()) <= max_unserved + len(last)

"""Placement over ranks: who goes where and when, by example and by laws that hold for any traffic."""

from collections.abc import Sequence
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import DiffusionRequest, SamplingParams
from engine.executors.affinity import affinity
from engine.executors.placement import Placement, Wave
from engine.executors.seats import Seat
from engine.executors.waves import allot
from engine.scheduler import SchedulerPolicy

Mode = Literal["request", "step"]
CAP = 4


def request(request_id: str, *, priority: int = 5, solo: bool = False, **params: Any) -> DiffusionRequest:
    given_params = SamplingParams(**{"height": 8, "width": 8, "seed": 0, "num_inference_steps": 4, **params})
    return DiffusionRequest(request_id=request_id, prompt=request_id, params=given_params, priority=priority, solo=solo)


def placement(mode: Mode, num_ranks: int = 2, cap: int = CAP, **policy: Any) -> Placement:
    rules = SchedulerPolicy(max_rows=cap, **{"wait_s": 0.0, "max_passes": 3, **policy})
    made = Placement(rules, mode, [Seat(rank) for rank in range(num_ranks)])
    for rank in range(num_ranks):
        made.up(rank, cap)
    return made


def shown(waves: Sequence[Wave]) -> dict[int, str]:
    return {wave.rank: "".join(one.request_id for one in wave.requests) for wave in waves}


class TestSteps:
    def test_an_idle_rank_comes_first_then_like_joins_like(self) -> None:
        desk = placement("step")
        for name, width in (("a", 8), ("b", 16), ("c", 16), ("d", 8)):
            desk.submit(request(name, width=width), 0.0)
        assert shown(desk.plan(0.0)) == {0: "ad", 1: "bc"}

    def test_the_emptier_rank_outweighs_likeness(self) -> None:
        desk = placement("step", cap=8)
        desk.submit(request("a", num_outputs=5), 0.0)
        desk.submit(request("b", width=16), 0.0)
        desk.submit(request("c"), 0.0)
        assert shown(desk.plan(0.0)) == {0: "a", 1: "bc"}

    def test_what_no_rank_has_room_for_waits_in_front(self) -> None:
        desk = placement("step", num_ranks=1)
        wanted = [request(name) for name in "abcdef"]
        for one in wanted:
            desk.submit(one, 0.0)
        assert shown(desk.plan(0.0)) == {0: "abcd"}
        assert desk.plan(1.0) == []
        desk.remove(wanted[1])
        assert shown(desk.plan(2.0)) == {0: "e"}

    def test_a_finished_row_gives_its_place(self) -> None:
        desk = placement("step", num_ranks=1)
        big = request("a", num_outputs=4)
        desk.submit(big, 0.0)
        desk.submit(request("b"), 0.0)
        assert shown(desk.plan(0.0)) == {0: "a"}
        desk.row_done(big)
        assert shown(desk.plan(0.0)) == {0: "b"}

    def test_a_higher_priority_goes_to_a_full_rank_that_will_hold_a_lower_one_back(self) -> None:
        desk = placement("step")
        for name in "abcdefgh":
            desk.submit(request(name, priority=7 if name in "aceg" else 5), 0.0)
        assert len(desk.plan(0.0)) == 2
        low = next(
            seat.rank for seat in desk.seats if any(held.entry.request.priority == 5 for held in seat.held.values())
        )
        desk.submit(request("i", priority=5), 0.0)
        assert desk.plan(0.0) == []
        desk.submit(request("j", priority=9), 0.0)
        assert shown(desk.plan(0.0)) == {low: "j"}

    def test_waiting_is_worth_a_priority(self) -> None:
        desk = placement("step", num_ranks=1, cap=1, ageing_s=10.0)
        first, old = request("a"), request("b", priority=4)
        desk.submit(first, 0.0)
        desk.plan(0.0)
        desk.submit(old, 0.0)
        desk.submit(request("c", priority=5), 11.0)
        desk.remove(first)
        assert shown(desk.plan(11.0)) == {0: "b"}

    def test_one_that_must_be_alone_empties_one_rank_while_the_others_go_on(self) -> None:
        desk = placement("step", cap=2)
        running = [request(name) for name in "abc"]
        for one in running:
            desk.submit(one, 0.0)
        assert shown(desk.plan(0.0)) == {0: "ac", 1: "b"}
        desk.submit(request("s", solo=True), 1.0)
        desk.submit(request("d"), 2.0)
        assert desk.plan(2.0) == [], "rank 1 is kept from filling up"
        desk.remove(running[0])
        assert shown(desk.plan(3.0)) == {0: "d"}
        desk.remove(running[1])
        assert shown(desk.plan(3.0)) == {1: "s"}
        desk.submit(request("e"), 4.0)
        assert desk.plan(4.0) == [], "and nobody joins it"

    def test_a_suspect_is_alone(self) -> None:
        desk = placement("step", num_ranks=1)
        desk.submit(request("a"), 0.0, suspect=True)
        desk.submit(request("b"), 0.0)
        assert shown(desk.plan(0.0)) == {0: "a"}


class TestBatches:
    def test_one_plan_gives_each_rank_a_different_request(self) -> None:
        desk = placement("request", num_ranks=3)
        for name, steps in (("a", 4), ("b", 5), ("c", 6)):
            desk.submit(request(name, num_inference_steps=steps), 0.0)
        assert shown(desk.plan(0.0)) == {0: "a", 1: "b", 2: "c"}

    def test_compatible_ones_are_together_and_shared_out_when_ranks_are_left(self) -> None:
        desk = placement("request")
        for name in "abcd":
            desk.submit(request(name), 0.0)
        assert shown(desk.plan(0.0)) == {0: "ac", 1: "bd"}

    def test_a_running_wave_is_not_joined(self) -> None:
        desk = placement("request", num_ranks=1)
        first = request("a")
        desk.submit(first, 0.0)
        desk.plan(0.0)
        desk.submit(request("b"), 1.0)
        assert desk.plan(9.0) == [] and desk.wake_s() is None
        desk.remove(first)
        assert shown(desk.plan(9.0)) == {0: "b"}

    def test_the_admission_wait_is_kept_in_front(self) -> None:
        desk = placement("request", wait_s=1.0)
        desk.submit(request("a"), 10.0)
        assert desk.plan(10.0) == []
        assert desk.wake_s() == pytest.approx(10.05)
        desk.submit(request("b"), 10.04)
        assert desk.plan(10.05) == []
        assert shown(desk.plan(10.09)) == {0: "a", 1: "b"}

    def test_a_rank_that_had_the_same_keeps_it(self) -> None:
        desk = placement("request")
        a, b = request("a", width=16), request("b")
        desk.submit(a, 0.0)
        desk.submit(b, 0.0)
        desk.plan(0.0)
        desk.remove(a)
        desk.remove(b)
        desk.submit(request("c"), 1.0)
        assert shown(desk.plan(1.0)) == {1: "c"}


def test_ranks_that_are_left_go_to_the_largest_groups() -> None:
    assert allot([[1, 1], [2, 2, 2]], 4) == [1, 3]
    assert allot([[8], [1]], 4) == [1, 1], "a request is not divided"


def test_a_lost_rank_is_not_given_anything() -> None:
    desk = placement("step")
    desk.down(0)
    assert desk.max_rows == CAP
    desk.submit(request("a"), 0.0)
    assert shown(desk.plan(0.0)) == {1: "a"}


ARRIVALS = st.lists(
    st.tuples(st.sampled_from([8, 16]), st.integers(0, 9), st.booleans(), st.integers(1, 6), st.booleans()), max_size=24
)


@given(mode=st.sampled_from(["request", "step"]), num_ranks=st.integers(1, 3), arrivals=ARRIVALS, data=st.data())
@settings(max_examples=60, deadline=None)
def test_laws(
    mode: Mode, num_ranks: int, arrivals: list[tuple[int, int, bool, int, bool]], data: st.DataObject
) -> None:
    """Everything is placed once; nobody is joined who must be alone; no rank idles while one waits; batches collate."""
    desk = placement(mode, num_ranks)
    coming = [
        (
            request(f"r{i}", width=width, priority=priority, solo=solo and i % 3 == 0, num_outputs=outputs),
            suspect and i % 5 == 0,
        )
        for i, (width, priority, solo, outputs, suspect) in enumerate(arrivals)
    ]
    placed: list[str] = []
    held: dict[int, list[DiffusionRequest]] = {rank: [] for rank in range(num_ranks)}
    apart = {one.request_id for one, suspect in coming if one.solo or suspect}
    now = 0.0
    while len(placed) < len(arrivals) or any(held.values()):
        now += 1.0
        busy = [one for ones in held.values() for one in ones]
        if coming and (not busy or data.draw(st.booleans())):
            one, suspect = coming.pop(0)
            desk.submit(one, now, suspect=suspect)
        elif busy:
            done = data.draw(st.sampled_from(busy))
            desk.remove(done)
            held = {rank: [one for one in ones if one is not done] for rank, ones in held.items()}
        before = {rank: len(ones) for rank, ones in held.items()}
        for wave in desk.plan(now):
            _check_wave(mode, wave, before[wave.rank])
            held[wave.rank] += wave.requests
            placed += [one.request_id for one in wave.requests]
        for ones in held.values():
            assert len(ones) == 1 or not apart & {one.request_id for one in ones}
        assert desk.waiting_rows == 0 or all(held.values()), "a rank idles while a request waits"
    assert sorted(placed) == sorted(f"r{i}" for i in range(len(arrivals)))


def _check_wave(mode: Mode, wave: Wave, num_held: int) -> None:
    if mode == "step":
        return
    assert num_held == 0
    assert len({affinity(one, mode) for one in wave.requests}) == 1
    assert len(wave.requests) == 1 or sum(one.params.num_outputs for one in wave.requests) <= CAP

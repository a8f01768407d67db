"""engine.scheduler: pure, so time is a number here."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import DiffusionRequest, SamplingParams
from engine.batch import Batch
from engine.batch_key import BatchKey
from engine.scheduler import Scheduler, SchedulerPolicy

REQUEST_FIELDS = {"priority", "solo", "deadline_s"}


def request(request_id: str, **changes: Any) -> DiffusionRequest:
    top = {name: value for name, value in changes.items() if name in REQUEST_FIELDS}
    rest = {name: value for name, value in changes.items() if name not in REQUEST_FIELDS}
    params = SamplingParams(**{"height": 8, "width": 8, "seed": 0, **rest})
    return DiffusionRequest(request_id=request_id, prompt="", params=params, **top)


def key(steps: int = 20, guidance: float = 4.0) -> BatchKey:
    return BatchKey(
        task="text2image", height=8, width=8, num_inference_steps=steps, guidance_scale=guidance, has_negative=False
    )


def ids(batch: Batch | None) -> list[str]:
    assert batch is not None
    return [r.request_id for r in batch.requests]


def rows(batch: Batch | None) -> list[tuple[str, int]]:
    assert batch is not None
    return [(row.request.request_id, row.index) for row in batch.rows]


def scheduler(max_rows: int = 4, wait_s: float = 0.0, **knobs: Any) -> Scheduler:
    return Scheduler(SchedulerPolicy(max_rows=max_rows, wait_s=wait_s, **knobs))


def submit(to: Scheduler, names: Iterable[str], now: float = 0.0, **changes: Any) -> None:
    steps = changes.pop("steps", 20)
    for name in names:
        to.submit(request(name, **changes), key(steps), now)


def test_nothing_waits() -> None:
    empty = scheduler()
    assert empty.plan(0.0) is None
    assert empty.wake_s() is None


def test_compatible_requests_run_together_in_order() -> None:
    s = scheduler()
    submit(s, "abcde")
    assert ids(s.plan(0.0)) == ["a", "b", "c", "d"]
    assert ids(s.plan(0.0)) == ["e"]
    assert s.plan(0.0) is None


def test_an_odd_one_does_not_split_the_others() -> None:
    """The seed forms [1], [2], [3, 4] of steps 2, 3, 2, 2."""
    s = scheduler()
    for name, steps in (("a", 2), ("b", 3), ("c", 2), ("d", 2)):
        s.submit(request(name), key(steps), 0.0)
    assert [ids(s.plan(0.0)), ids(s.plan(0.0))] == [["a", "c", "d"], ["b"]]


class TestAdmissionWait:
    def test_trickle_of_three(self) -> None:
        s = scheduler(wait_s=0.1)
        for name, now in (("a", 0.00), ("b", 0.01), ("c", 0.02)):
            s.submit(request(name), key(), now)
            assert s.plan(now) is None
        assert s.wake_s() == pytest.approx(0.04)
        assert s.plan(0.039) is None
        assert ids(s.plan(0.0401)) == ["a", "b", "c"]

    def test_single_arrival_waits_one_stable_window(self) -> None:
        s = scheduler(wait_s=0.1)
        submit(s, "a", 5.0)
        assert s.wake_s() == pytest.approx(5.02)

    def test_window_is_at_most_50_ms(self) -> None:
        s = scheduler(wait_s=10.0)
        submit(s, "a", 5.0)
        assert s.wake_s() == pytest.approx(5.05)

    def test_steady_trickle_ends_at_the_deadline(self) -> None:
        s = scheduler(max_rows=100, wait_s=0.1)
        for i in range(10):
            s.submit(request(f"r{i}"), key(), i * 0.0101)
        assert s.plan(0.0999) is None
        assert len(ids(s.plan(0.1001))) == 10

    def test_full_batch_goes_at_once(self) -> None:
        s = scheduler(max_rows=2, wait_s=10.0)
        submit(s, "ab")
        assert ids(s.plan(0.0)) == ["a", "b"]

    def test_only_compatible_arrivals_count(self) -> None:
        s = scheduler(wait_s=0.1)
        s.submit(request("a"), key(2), 0.0)
        s.submit(request("b"), key(3), 0.015)
        assert ids(s.plan(0.0201)) == ["a"]
        assert s.plan(0.0201) is None

    def test_a_full_group_does_not_wait_for_an_unripe_head(self) -> None:
        s = scheduler(max_rows=2, wait_s=0.1)
        s.submit(request("a"), key(2), 0.0)
        for name in "bc":
            s.submit(request(name), key(3), 0.001)
        assert ids(s.plan(0.001)) == ["b", "c"]
        assert s.plan(0.001) is None

    def test_the_device_never_idles_for_a_group_older_than_the_wait(self) -> None:
        """As after a long batch: what waited through it needs no further wait."""
        s = scheduler(wait_s=0.1)
        submit(s, "a", 0.0)
        submit(s, "b", 9.99)
        assert ids(s.plan(10.0)) == ["a", "b"]

    def test_no_wait(self) -> None:
        s = scheduler(wait_s=0.0)
        submit(s, "a", 3.0)
        assert s.wake_s() == 3.0


class TestRows:
    def test_outputs_count_as_rows(self) -> None:
        s = scheduler(max_rows=4)
        submit(s, "ab", num_outputs=2)
        submit(s, "c")
        assert rows(s.plan(0.0)) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
        assert ids(s.plan(0.0)) == ["c"]

    def test_a_request_larger_than_a_batch_is_split(self) -> None:
        s = scheduler(max_rows=8)
        submit(s, "a", num_outputs=16)
        first, second = s.plan(0.0), s.plan(0.0)
        assert rows(first) == [("a", k) for k in range(8)]
        assert rows(second) == [("a", k) for k in range(8, 16)]
        assert s.plan(0.0) is None

    def test_the_rest_of_a_split_request_shares_its_batch(self) -> None:
        s = scheduler(max_rows=8)
        submit(s, "a", num_outputs=10)
        submit(s, "b")
        assert len(rows(s.plan(0.0))) == 8
        assert rows(s.plan(0.0)) == [("a", 8), ("a", 9), ("b", 0)]

    def test_a_request_that_fits_is_never_split(self) -> None:
        s = scheduler(max_rows=4)
        submit(s, "ab", num_outputs=3)
        submit(s, "c")
        assert rows(s.plan(0.0)) == [("a", 0), ("a", 1), ("a", 2), ("c", 0)]
        assert rows(s.plan(0.0)) == [("b", 0), ("b", 1), ("b", 2)]

    def test_solo_runs_alone_and_at_once(self) -> None:
        s = scheduler(wait_s=10.0)
        submit(s, "a", solo=True, num_outputs=2)
        submit(s, "bcde")
        assert rows(s.plan(0.0)) == [("a", 0), ("a", 1)]
        assert ids(s.plan(0.0)) == ["b", "c", "d", "e"]

    def test_solo_joins_nobody(self) -> None:
        s = scheduler()
        submit(s, "a")
        submit(s, "b", solo=True)
        submit(s, "c")
        assert [ids(s.plan(0.0)), ids(s.plan(0.0))] == [["a", "c"], ["b"]]

    def test_exact_runs_row_by_row(self) -> None:
        s = scheduler()
        submit(s, "a", exact=True, num_outputs=2)
        submit(s, "b")
        assert [rows(s.plan(0.0)) for _ in range(3)] == [[("a", 0)], [("a", 1)], [("b", 0)]]

    def test_waiting_rows(self) -> None:
        s = scheduler(max_rows=8)
        submit(s, "a", num_outputs=16)
        submit(s, "b")
        assert s.waiting_rows == 17
        s.plan(0.0)
        assert s.waiting_rows == 9


class TestRemove:
    def test_a_removed_request_never_runs(self) -> None:
        s = scheduler()
        gone = request("a")
        s.submit(gone, key(), 0.0)
        submit(s, "b")
        s.remove(gone)
        assert ids(s.plan(0.0)) == ["b"]

    def test_the_rest_of_a_split_request_is_removed(self) -> None:
        s = scheduler(max_rows=2)
        gone = request("a", num_outputs=4)
        s.submit(gone, key(), 0.0)
        s.plan(0.0)
        s.remove(gone)
        assert s.plan(0.0) is None

    def test_another_request_of_the_same_id_stays(self) -> None:
        s = scheduler()
        old, new = request("a"), request("a")
        s.submit(new, key(), 0.0)
        s.remove(old)
        assert ids(s.plan(0.0)) == ["a"]


class TestRank:
    def test_nine_goes_first(self) -> None:
        s = scheduler(max_rows=1)
        for name, priority in (("low", 0), ("mid", 5), ("high", 9)):
            s.submit(request(name, priority=priority), key(), 0.0)
        assert [ids(s.plan(0.0)) for _ in range(3)] == [["high"], ["mid"], ["low"]]

    def test_waiting_is_worth_priority(self) -> None:
        s = scheduler(max_rows=1, ageing_s=10.0)
        s.submit(request("old", priority=5), key(), 0.0)
        s.submit(request("new", priority=6), key(), 10.5)
        s.submit(request("newer", priority=6), key(), 9.5)
        assert [ids(s.plan(20.0)) for _ in range(3)] == [["newer"], ["old"], ["new"]]

    def test_a_stream_of_nines_cannot_starve_a_zero(self) -> None:
        s = scheduler(max_rows=1, ageing_s=1.0)
        s.submit(request("zero", priority=0), key(), 0.0)
        for i in range(100):
            now = i * 0.5
            s.submit(request(f"nine{i}", priority=9), key(), now)
            if ids(s.plan(now)) == ["zero"]:
                break
        assert now == 9.0  # nine levels of priority at one a second


class TestLookAhead:
    def test_look_ahead_is_bounded(self) -> None:
        s = scheduler(max_rows=4, look_ahead=3)
        s.submit(request("a"), key(2), 0.0)
        submit(s, "bc", steps=3)
        s.submit(request("d"), key(2), 0.0)
        assert ids(s.plan(0.0)) == ["a"]
        s.submit(request("e"), key(2), 0.0)
        assert ids(s.plan(0.0)) == ["b", "c"]

    def test_a_ripe_group_passes_an_unripe_head_at_most_max_passes_times(self) -> None:
        s = scheduler(max_rows=2, wait_s=50.0, max_passes=3)
        s.submit(request("odd"), key(3), 0.0)
        served = []
        for i in range(6):
            for name in (f"a{i}", f"b{i}"):
                s.submit(request(name), key(2), 0.001)
            served.append(ids(s.plan(0.001)))
        assert served[:4] == [["a0", "b0"], ["a1", "b1"], ["a2", "b2"], ["odd"]]

    @settings(max_examples=60, deadline=None)
    @given(
        steps=st.lists(st.integers(1, 4), min_size=1, max_size=40),
        outputs=st.lists(st.integers(1, 6), min_size=40, max_size=40),
        max_passes=st.integers(1, 4),
        max_rows=st.integers(1, 5),
    )
    def test_everybody_is_served_once_and_never_passed_more_often(
        self, steps: list[int], outputs: list[int], max_passes: int, max_rows: int
    ) -> None:
        s = scheduler(max_rows=max_rows, max_passes=max_passes)
        order = {}
        for i, (step, num_outputs) in enumerate(zip(steps, outputs, strict=False)):
            s.submit(request(str(i), num_outputs=num_outputs), key(step), 0.0)
            order[str(i)] = num_outputs
        batches = []
        while (batch := s.plan(1.0)) is not None:
            assert len(batch.rows) <= max_rows
            assert len({steps[int(r.request_id)] for r in batch.requests}) == 1
            batches.append(batch)
        served = [row for batch in batches for row in rows(batch)]
        assert sorted(served) == sorted((name, k) for name, num in order.items() for k in range(num))
        for name in order:
            first = next(i for i, batch in enumerate(batches) if name in ids(batch))
            passes = sum(any(int(other) > int(name) for other in ids(batch)) for batch in batches[:first])
            assert passes <= max_passes


class TestLearnedBound:
    def test_a_bound_holds_for_the_footprint_whatever_the_steps(self) -> None:
        s = scheduler(max_rows=4)
        s.bound(key(steps=20), 2)
        submit(s, "abc", steps=30)
        assert ids(s.plan(0.0)) == ["a", "b"]

    def test_other_footprints_keep_theirs(self) -> None:
        s = scheduler(max_rows=4)
        s.bound(key(guidance=4.0), 1)
        s.submit(request("a"), key(guidance=1.0), 0.0)
        s.submit(request("b"), key(guidance=1.0), 0.0)
        assert ids(s.plan(0.0)) == ["a", "b"]

    def test_a_bound_only_falls_and_never_to_nothing(self) -> None:
        s = scheduler(max_rows=4)
        s.bound(key(), 2)
        s.bound(key(), 3)
        assert s.max_rows(key()) == 2
        s.bound(key(), 0)
        assert s.max_rows(key()) == 1

    def test_limit_holds_for_all(self) -> None:
        s = scheduler(max_rows=4)
        s.limit(1)
        submit(s, "ab")
        assert [ids(s.plan(0.0)), ids(s.plan(0.0))] == [["a"], ["b"]]

"""The simulator of scheduling policies: small traces whose outcome is known, and the bound that holds for all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.arrivals import TRACES, Arrival, mixed
from bench.policies import trace_of
from bench.simulator import (
    POLICIES,
    Device,
    first_come,
    least_mean_s,
    least_p95_s,
    score,
    shortest_first,
    single_steps,
    whole_calls,
)

#: A row alone takes 2 s a step, a batch of four 5 s.
DEVICE = Device(fixed_s=1.0, row_s=1.0, max_rows=4)


def at_once(*sizes: int, steps: int = 2) -> list[Arrival]:
    return [Arrival(f"r{number}", 0.0, size, steps) for number, size in enumerate(sizes)]


def test_the_anchor_stops_at_the_first_incompatible_head() -> None:
    run = first_come(at_once(512, 512, 512, 512, steps=1), DEVICE)
    assert (run.waves, run.ends["r3"]) == ([4], 5.0)
    in_turn = first_come(at_once(512, 256, 512, 256, steps=1), DEVICE)
    assert in_turn.waves == [1, 1, 1, 1]
    assert in_turn.ends["r0"] == 2.0


def test_whole_calls_look_past_the_head() -> None:
    run = whole_calls(at_once(512, 256, 512, 256), DEVICE)
    assert run.waves == [2, 2, 2, 2]  # two batches of two steps


def test_single_steps_join_what_differs_only_in_steps() -> None:
    trace = [Arrival("long", 0.0, 512, 3), Arrival("short", 0.0, 512, 1), Arrival("late", 3.5, 512, 1)]
    run = single_steps(trace, DEVICE)
    assert run.waves == [2, 1, 2]
    assert run.ends == {"short": 3.0, "long": 8.0, "late": 8.0}


def test_every_policy_does_all_the_work_and_waits_for_arrivals() -> None:
    trace = [Arrival("a", 5.0, 512, 2), Arrival("b", 100.0, 512, 2)]
    for policy in POLICIES.values():
        run = policy(trace, DEVICE)
        assert run.ends["b"] == pytest.approx(104.0, abs=0.1)
        assert run.busy_s == pytest.approx(8.0)


def test_shortest_first_interrupts() -> None:
    assert shortest_first([(0.0, 10.0), (2.0, 1.0)]) == [11.0, 3.0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.5, 2.0, 20.0]))
def test_no_policy_beats_the_bound(seed: int, rate: float) -> None:
    device = Device()
    trace = mixed(12, rate, seed)
    for policy in POLICIES.values():
        made = score(trace, policy(trace, device))
        assert made.mean_s >= least_mean_s(trace, device) - 1e-9
        assert made.p95_s >= least_p95_s(trace, device) - 1e-9


@pytest.mark.parametrize("name", TRACES)
def test_traces_are_the_same_every_time_and_in_order(name: str) -> None:
    trace = trace_of(name, 40, Device())
    assert trace == trace_of(name, 40, Device())
    assert len({one.name for one in trace}) == 40

"""What the benches print and keep: tables, figures, drift, the choice of steps. No server, no clock."""

import json
from pathlib import Path

import pytest

from bench.drift import drift
from bench.growth import Costs, shape, sizes, steepest
from bench.http_clients import content_length
from bench.pipelining import idle_share, longest_gap_s, step_ends
from bench.report import keep, quantile, table
from bench.suite import STEPS as SUITE
from bench.suite import chosen_steps
from bench.wiretap import Traffic


def test_a_table_is_markdown_with_three_digits() -> None:
    text = table(("a", "b"), [("x", 1234.567), ("y", 0.01234), ("z", 3)])
    assert text.splitlines() == ["| a | b |", "| --- | --- |", "| x | 1235 |", "| y | 0.0123 |", "| z | 3 |"]


@pytest.mark.parametrize(("share", "value"), [(0.5, 5), (0.9, 9), (0.99, 10), (1.0, 10), (0.0, 1)])
def test_a_quantile_is_one_of_the_values(share: float, value: float) -> None:
    assert quantile([float(one) for one in range(10, 0, -1)], share) == value


def test_figures_add_up_in_their_file(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    keep(file, {"a": 1.23456})
    keep(file, {"b": 2.0})
    keep(None, {"c": 3.0})
    assert json.loads(file.read_text()) == {"a": 1.235, "b": 2.0}


def test_drift_tells_the_largest_change_first_and_judges_nothing() -> None:
    rows = drift({"a": 1.0, "b": 2.0, "gone": 1.0, "zero": 0.0}, {"a": 1.1, "b": 1.0, "new": 5.0, "zero": 0.0})
    assert rows[0] == ("b", 2.0, 1.0, "-50 %")
    assert rows[1] == ("a", 1.0, 1.1, "+10 % (noise)")
    assert {row[0]: row[3] for row in rows[2:]} == {"gone": "not measured", "new": "new", "zero": "same"}


def test_steps_are_chosen_by_table_or_script_and_a_wrong_name_is_told() -> None:
    assert chosen_steps([]) == list(SUITE)
    assert [step.module for step in chosen_steps(["growth", "Policies"])] == ["bench.policies", "bench.growth"]
    with pytest.raises(ValueError, match="nonsense"):
        chosen_steps(["nonsense"])


def test_a_cost_that_grows_with_the_queue_is_seen() -> None:
    flat = [Costs(10**power, {"get": 20.0 + power, "ls": 3.0 * 10**power}, 3000.0) for power in (3, 4, 5)]
    assert sizes(100_000) == [1_000, 10_000, 100_000]
    assert shape(steepest(flat, "get")) == "flat or logarithmic"
    assert shape(steepest(flat, "ls")) != "flat or logarithmic"


def test_the_idle_share_is_what_no_step_fills() -> None:
    lines = [f"{at} 1 job.1 {row} 1" for at in (1_000_000_000, 1_100_000_000, 1_400_000_000) for row in (0, 1)]
    ends = step_ends(lines)
    assert ends == [1.0, 1.1, 1.4]
    assert idle_share(ends, 0.1) == pytest.approx(0.5)
    assert longest_gap_s(ends, 0.1) == pytest.approx(0.2)
    assert idle_share([1.0], 0.1) == 0.0


def test_round_trips_are_turns_of_the_client() -> None:
    traffic = Traffic()
    for by_client, was_server in ((True, True), (True, False), (False, False), (False, True), (True, True)):
        traffic = traffic.spoke(10, by_client=by_client, was_server=was_server)
    assert traffic == Traffic(round_trips=2, bytes_out=30, bytes_in=20)
    assert traffic.since(Traffic(1, 10, 20)) == Traffic(1, 20, 0)


def test_an_answer_tells_its_length() -> None:
    assert content_length(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n") == 12
    with pytest.raises(ValueError, match="503"):
        content_length(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 12\r\n\r\n")

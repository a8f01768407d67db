"""The load table's pure parts: the trace, what a run came to, how it is shown."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import pytest

from bench.peers import figures, tables, trace
from bench.peers.figures import Answer, Cell, Usage
from bench.peers.model import by_shape


def test_the_same_seed_is_the_same_trace() -> None:
    assert trace.mixed(20, (16, 24), seed=3) == trace.mixed(20, (16, 24), seed=3)
    assert trace.mixed(20, (16, 24), seed=3) != trace.mixed(20, (16, 24), seed=4)


def test_requests_are_mixed_and_have_ids_of_their_own() -> None:
    wanted = trace.mixed(400, (16, 24), seed=1)
    assert len({one.id for one in wanted}) == 400
    sizes = Counter(one.size for one in wanted)
    steps = Counter(one.steps for one in wanted)
    assert set(sizes) == {16, 24} and min(sizes.values()) > 150
    assert set(steps) == set(trace.STEPS) and min(steps.values()) > 50


def test_arrivals_come_at_the_rate() -> None:
    arrivals = trace.poisson(trace.mixed(2000, (16,), seed=1), rate_per_s=4.0, seed=7)
    gaps = [later.at_s - one.at_s for one, later in itertools.pairwise(arrivals)]
    assert min(gaps) > 0
    assert arrivals[-1].at_s == pytest.approx(500, rel=0.1)
    # Of exponential gaps a share of 1/e is longer than the mean.
    assert sum(gap > 0.25 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.04)


def test_another_rate_is_the_same_trace_pressed_together() -> None:
    wanted = trace.mixed(30, (16,), seed=1)
    slow, fast = trace.poisson(wanted, 1.0, seed=5), trace.poisson(wanted, 3.0, seed=5)
    assert [one.at_s for one in slow] == pytest.approx([3 * one.at_s for one in fast])
    assert [one.wanted for one in slow] == [one.wanted for one in fast]


def test_a_call_has_rows_of_one_shape() -> None:
    wanted = trace.mixed(50, (16, 24), seed=1)
    groups = by_shape([one.as_request() for one in wanted])
    assert sorted(index for group in groups.values() for index in group) == list(range(50))
    for (size, steps, guidance), group in groups.items():
        assert all((wanted[i].size, wanted[i].steps, wanted[i].guidance) == (size, steps, guidance) for i in group)


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_percentiles_by_nearest_rank(share: float, value: int) -> None:
    assert figures.percentile(list(range(100, 0, -1)), share) == value


def test_overlaps_and_gaps_count_once() -> None:
    answers = [Answer(0, 4, 0), Answer(1, 2, 0), Answer(3, 5, 0), Answer(10, 12, 0)]
    assert figures.outstanding_s(answers) == 7


def test_a_cell_counts_what_came_and_what_was_wrong() -> None:
    answers = [Answer(0, 2, 0), Answer(1, 4, figures.TOLERANCE), Answer(2, 6, 99), Answer(4, 10, None)]
    cell = figures.summarise("x", 1.0, answers, Usage(total_s=6, busiest_thread_s=4, others_s=1))
    assert (cell.requests, cell.wrong, cell.missing) == (4, 1, 1)
    assert cell.images_per_s == pytest.approx(0.3)
    assert cell.mean_s == pytest.approx((2 + 3 + 4 + 6) / 4)
    assert (cell.p50_s, cell.p95_s, cell.p99_s) == (3, 6, 6)
    assert cell.idle_share == pytest.approx(0.6)
    assert cell.cpu_s_per_image == pytest.approx(2)
    assert cell.others_cpu_share == pytest.approx(0.1)
    assert json.loads(json.dumps(cell.as_json()))["system"] == "x"


def cell(system: str, rate: float, mean_s: float, **fields: float) -> Cell:
    values = {"images_per_s": 2.0, "p50_s": 1.0, "p95_s": 2.0, "p99_s": 3.0, "idle_share": 0.25, "cpu_s_per_image": 0.5}
    counts = {"requests": 8, "others_cpu_share": 0.0, "wrong": 0, "missing": 0}
    return Cell(system=system, rate=rate, mean_s=mean_s, **{**values, **counts, **fields})  # type: ignore[arg-type]


def test_a_row_is_beside_the_best_peer_of_its_rate() -> None:
    cells = [
        cell("safelight", 1, 1.0),
        cell("a", 1, 4.0),
        cell("b", 1, 2.0),
        cell("safelight", 3, 3.0),
        cell("a", 3, 4.0),
    ]
    rows = [
        line.strip("| ").split(" | ") for line in tables.load_table(cells, serial_s=0.5, serial_cpu_s=0.25).splitlines()
    ]
    assert rows[0][0] == "rate" and len({len(row) for row in rows}) == 1
    assert [row[9] for row in rows[2:]] == ["0.50", "2.00", "1.00", "0.75", "1.00"]
    assert rows[2][:4] == ["1", "**safelight**", "1.00", "2.00"]
    assert rows[2][7:9] == ["25%", "2.00"]


def test_faults_are_said_in_the_row() -> None:
    text = tables.load_table([cell("a", 1, 1.0, wrong=2, missing=1), cell("b", 1, 1.0)], 1.0, 1.0)
    assert "2 differ, 1 missing |" in text and text.count("equal") == 1

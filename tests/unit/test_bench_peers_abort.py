"""What a step log says about an abort, how it is told, and the table of handing jobs over."""

from __future__ import annotations

from bench.peers import tables
from bench.peers.abort_figures import Step, Trial, judge, outcome, parse_steps
from bench.peers.enqueue_figures import Cost, middle

NAME = ("peer", "hang up", 1)


def steps(*rows: tuple[float, str]) -> list[Step]:
    return [Step(at_s, frozenset(ids.split())) for at_s, ids in rows]


def test_a_line_that_is_being_written_is_left_out() -> None:
    assert parse_steps("1.5 a b\n2.5 a\n3.") == steps((1.5, "a b"), (2.5, "a"))
    assert parse_steps("") == []


def test_not_yet_known_while_nobody_else_steps() -> None:
    assert judge(steps((1, "a"), (2, "a"), (3, "a")), "a", 1.5, 10, NAME) is None


def test_a_row_that_runs_on_is_never_freed() -> None:
    seen = judge(steps((1, "a"), (2, "a"), (3, "a"), (4, "b")), "a", 1.5, 3, NAME)
    assert seen is not None and seen.freed_ms is None and seen.steps == 2


def test_the_place_is_free_when_another_steps() -> None:
    seen = judge(steps((1, "a"), (2, "a"), (5, "b"), (6, "b")), "a", 1.5, 10, NAME)
    assert seen == Trial("peer", "hang up", 1, 3500.0, 1, died=0)


def test_mates_that_never_step_again_lost_their_work() -> None:
    seen = judge(steps((1, "a b c"), (2, "a b c"), (5, "d")), "a", 1.5, 10, NAME)
    assert seen is not None and seen.died == 2


def test_mates_that_go_on_lost_nothing() -> None:
    seen = judge(steps((1, "a b c"), (2, "b c"), (3, "b c")), "a", 1.5, 10, NAME)
    assert seen is not None and (seen.died, seen.steps, seen.freed_ms) == (0, 0, 500.0)


def trial(freed_ms: float | None, num_steps: int, died: int = 0) -> Trial:
    return Trial("peer", "hang up", 100, freed_ms, num_steps, died)


def test_outcomes_in_words() -> None:
    assert outcome([]) == "not tried"
    assert outcome([trial(None, 40)]) == "never: the row runs to its end (40 steps more)"
    assert outcome([trial(10, 1), trial(20, 1), trial(90, 2)]) == "20 ms (worst 90), 1 steps"
    assert outcome([trial(10, 0, 7)]).endswith("up to 7 batch-mates lose their work")
    assert outcome([trial(10, 0), trial(None, 9)]).endswith("in 1 of 2 never")


def test_a_depth_that_a_system_was_not_asked_for() -> None:
    ours = Trial("safelight", "abort", 1000, 5.0, 0)
    rows = tables.abort_table([ours, trial(None, 9)]).splitlines()
    assert rows[0] == "| system | how | 100 in flight | 1000 in flight |"
    assert rows[2] == "| **safelight** | abort | not tried | 5 ms (worst 5), 0 steps |"
    assert rows[3].endswith("| not tried |")


def cost(call: str, cpu_ms: float) -> Cost:
    return Cost(call, 2000, cpu_ms, 0.2, 1.0, 4.0, 500.0)


def test_rounds_come_to_their_middle() -> None:
    assert middle([cost("x", 3.0), cost("x", 1.0), cost("x", 2.0)]) == cost("x", 2.0)


def test_enqueue_is_beside_celery() -> None:
    rows = tables.enqueue_table([cost("celery `apply_async`", 2.0), cost("arq", 0.5)]).splitlines()
    assert rows[2] == "| celery `apply_async` | 2 000 | 2.000 | 1.00 | 0.200 | 1.00 | 4.0 | 500 |"
    assert "| 0.500 | 0.25 |" in rows[3]

"""Who joins in step mode: rows that can share forwards with those under way go first, and nobody waits for ever."""

from dataclasses import replace

import pytest

from engine.scheduler import SchedulerPolicy
from engine.step_scheduler import StepScheduler
from tests.unit.test_step_scheduler import KEY, names, request

ODD = replace(KEY, height=16)


class Desk:
    def __init__(self, max_rows: int = 4, **policy: int) -> None:
        self.scheduler = StepScheduler(SchedulerPolicy(max_rows=max_rows, places_a_row=1, **policy))
        self.now = 0.0

    def submit(self, *wanted: str, priority: int = 5) -> None:
        """Names that begin with `o` are of the odd size."""
        for name in wanted:
            key = ODD if name.startswith("o") else KEY
            self.scheduler.submit(request(name, priority=priority), key, self.now)

    def join(self) -> list[str]:
        return names(self.scheduler.join())

    def leave(self, *gone: str) -> None:
        for slot in [slot for slot in self.scheduler.running if slot.request.request_id in gone]:
            self.scheduler.leave(slot)


def test_an_empty_device_is_filled_with_one_size() -> None:
    desk = Desk()
    desk.submit("a", "o1", "b", "o2", "c", "o3", "d", "o4")
    assert desk.join() == ["a", "b", "c", "d"]
    desk.leave("a", "b", "c", "d")
    assert desk.join() == ["o1", "o2", "o3", "o4"]


def test_room_that_kin_do_not_fill_goes_to_the_others() -> None:
    desk = Desk()
    desk.submit("a", "o1", "b", "o2", "o3")
    assert desk.join() == ["a", "b", "o1", "o2"]


@pytest.mark.parametrize("max_passes", [0, 1, 3])
def test_an_odd_size_is_passed_a_few_times_and_no_more(max_passes: int) -> None:
    desk = Desk(max_rows=2, max_passes=max_passes)
    desk.submit("a0", "a1")
    desk.join()
    desk.submit("o", *(f"a{number}" for number in range(2, 10)))
    joined = []
    for number in range(9):
        desk.leave(f"a{number}")
        joined += desk.join()
    assert joined.index("o") == max_passes


def test_nobody_overtakes_a_higher_priority() -> None:
    desk = Desk(max_rows=2)
    desk.submit("a0", "a1")
    desk.join()
    desk.submit("o", priority=6)
    desk.submit("a2")
    desk.leave("a0")
    assert desk.join() == ["o"]


def test_nothing_is_done_about_those_that_wait_while_there_is_no_room() -> None:
    desk = Desk(max_rows=1)
    desk.submit("a0", "o", "a1")
    desk.join()
    assert desk.join() == []
    assert [entry.passed for entry in desk.scheduler._waiting] == [0, 0]

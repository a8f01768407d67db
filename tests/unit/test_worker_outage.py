"""While the object store is away one at a time tries, and everybody goes as soon as it is back."""

from __future__ import annotations

import threading

import pytest

from engine.testing import FakeClock
from worker.outage import LONGEST_PAUSE_S, Outage

FAR = 1e12


class Waits(Exception):
    """The outage made it wait."""


def must_wait() -> None:
    raise Waits


def test_without_an_outage_nobody_waits() -> None:
    outage = Outage(FakeClock())
    for _ in range(3):
        outage.wait_turn(must_wait, FAR)
    assert not outage.is_away and outage.away_s == 0


def test_one_tries_at_a_time_and_less_and_less_often() -> None:
    clock = FakeClock()
    outage = Outage(clock)
    outage.failed()
    pauses = []
    for _ in range(8):
        began = clock.now_s
        while True:
            try:
                outage.wait_turn(must_wait, FAR)
                break
            except Waits:
                clock.advance(0.125)
        with pytest.raises(Waits):
            outage.wait_turn(must_wait, FAR)  # somebody has the turn
        pauses.append(clock.now_s - began)
        outage.failed()
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    outage.over()
    outage.wait_turn(must_wait, FAR)


def test_a_failure_of_one_who_began_before_the_outage_prolongs_nothing() -> None:
    clock = FakeClock()
    outage = Outage(clock)
    outage.failed()
    clock.advance(0.2)
    outage.failed()
    clock.advance(0.05)
    outage.wait_turn(must_wait, FAR)


def test_patience_ends_the_wait_and_a_turn_without_an_answer_goes_to_the_next() -> None:
    clock = FakeClock()
    outage = Outage(clock)
    outage.failed()
    outage.wait_turn(must_wait, clock.now_s)
    clock.advance(1)
    outage.wait_turn(must_wait, FAR)
    outage.pass_on()
    outage.wait_turn(must_wait, FAR)
    assert outage.is_away


@pytest.mark.parametrize("end", ["over", "stop"])
def test_waiters_go_at_once_when_it_is_over_or_they_are_stopped(end: str) -> None:
    outage, stopped, looked = Outage(FakeClock()), threading.Event(), threading.Semaphore(0)
    outage.failed()
    ends: list[str] = []

    def look() -> None:
        looked.release()
        if stopped.is_set():
            raise Waits

    def wait() -> None:
        try:
            outage.wait_turn(look, FAR)
            ends.append("over")
        except Waits:
            ends.append("stop")

    # The fake clock stands still: only being woken ends a wait before its glance.
    threads = [threading.Thread(target=wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert looked.acquire(timeout=5)
    if end == "over":
        outage.over()
    else:
        stopped.set()
        outage.wake()
    for thread in threads:
        thread.join(4)
    assert ends == [end] * 5

"""A thread that does one thing again and again leaves the others their turn, whatever its interval."""

from __future__ import annotations

import threading

from worker.periodic import LEAST_S, Periodic


def test_no_interval_is_no_busy_loop() -> None:
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1

    periodic = Periodic("eager", tick, 0.0)
    periodic.start()
    threading.Event().wait(20 * LEAST_S)
    periodic.stop()
    assert ticks <= 1000  # fewer on a slow machine; a busy loop makes a hundred times as many


def test_an_error_ends_nothing() -> None:
    again = threading.Event()
    seen: list[int] = []

    def tick() -> None:
        seen.append(1)
        if len(seen) > 1:
            again.set()
        raise RuntimeError("once more")

    periodic = Periodic("unlucky", tick, 0.0)
    periodic.start()
    assert again.wait(30)
    periodic.stop()

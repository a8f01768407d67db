"""The pool's stop, and the wait of a drain for jobs whose pool is gone already."""

from __future__ import annotations

import threading
import time

from tests.unit.test_worker_attempt import an_attempt
from worker.attempt import Attempts
from worker.drain import Drain
from worker.pool import DeliveryPool, delivery_pool


def a_pool(patience_s: float) -> DeliveryPool:
    return delivery_pool(lambda: patience_s)(1)


def test_a_delivery_that_waits_for_a_thread_does_not_hold_up_the_stop() -> None:
    pool, release = a_pool(30), threading.Event()
    pool.on_apply(release.wait, (10,))
    pool.on_apply(release.wait, (10,))  # no thread is left for this one
    threading.Timer(0.1, release.set).start()
    began = time.monotonic()
    pool.on_stop()
    assert time.monotonic() - began < 5


def test_the_stop_waits_for_what_runs() -> None:
    pool, ended = a_pool(30), threading.Event()
    pool.on_apply(time.sleep, (0.2,), callback=lambda _: ended.set())
    pool.on_stop()
    assert ended.is_set()


def test_celerys_books_are_kept_by_one_thread_at_a_time() -> None:
    pool = delivery_pool(lambda: 30.0)(8)
    inside, most = 0, 0

    def note(*_: object) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.002)
        inside -= 1

    for _ in range(40):
        pool.on_apply(time.sleep, (0.001,), accept_callback=note, callback=note)
    pool.on_stop()
    assert most == 1


def test_a_drain_waits_for_attempts_of_any_pool_and_no_longer_than_it_may() -> None:
    attempts = Attempts()
    drain = Drain(attempts, grace_s=0.2)
    assert drain.patience_s(0.2) == 0
    with attempts.holding(an_attempt()):
        drain.begin()
        began = time.monotonic()
        drain.wait(0.2)
        assert 0.3 < time.monotonic() - began < 5
    began = time.monotonic()
    drain.wait(30)
    assert time.monotonic() - began < 10


def test_a_wish_that_is_heard_again_hurries_nobody_and_a_second_signal_does() -> None:
    attempts = Attempts()
    drain = Drain(attempts, grace_s=60)
    running = an_attempt()
    running.started = True
    stopped = threading.Event()
    running.bind(stopped.set)
    with attempts.holding(running):
        for _ in range(3):
            drain.request()
        drain.begin()  # the first signal leaves it what is left of the grace
        assert drain.draining
        assert not stopped.wait(0.3)
        drain.begin()
        assert stopped.wait(5)

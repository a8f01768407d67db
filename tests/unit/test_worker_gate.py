"""The gate: ordinary jobs share, a loner is alone, nobody waits for ever."""

from __future__ import annotations

import random
import threading
import time

from worker.gate import Gate


def _nothing() -> None: ...


def test_ordinary_jobs_share_and_loners_are_alone() -> None:
    gate, inside, lock, violations = Gate(), [0, 0], threading.Lock(), []

    def ordinary() -> None:
        with gate.entering(lambda: False):
            with lock:
                inside[0] += 1
                if inside[1]:
                    violations.append("an ordinary job ran beside a loner")
            time.sleep(random.random() * 0.005)
            with lock:
                inside[0] -= 1

    def loner() -> None:
        with gate.entering(lambda: False), gate.alone(_nothing):
            with lock:
                inside[1] += 1
                if inside[0] or inside[1] > 1:
                    violations.append("a loner had company")
            time.sleep(0.003)
            with lock:
                inside[1] -= 1

    threads = [threading.Thread(target=loner if n % 5 == 0 else ordinary) for n in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert violations == []


def test_a_waiting_job_gives_up_when_told() -> None:
    gate, alone = Gate(), threading.Event()
    done = threading.Event()

    def loner() -> None:
        with gate.entering(lambda: False), gate.alone(_nothing):
            alone.set()
            done.wait(10)

    thread = threading.Thread(target=loner)
    thread.start()
    assert alone.wait(5)
    with gate.entering(lambda: True) as entered:
        assert not entered
    done.set()
    thread.join(5)


def test_a_loner_that_is_stopped_while_it_waits_leaves_the_gate_open() -> None:
    gate, release = Gate(), threading.Event()

    def ordinary() -> None:
        with gate.entering(lambda: False):
            release.wait(10)

    thread = threading.Thread(target=ordinary)
    thread.start()

    class StopNow(Exception): ...

    def stop() -> None:
        raise StopNow

    try:
        with gate.entering(lambda: False), gate.alone(stop):
            raise AssertionError("it had company and must not get here")
    except StopNow:
        pass
    with gate.entering(lambda: True) as entered:
        assert entered
    release.set()
    thread.join(5)

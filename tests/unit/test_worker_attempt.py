"""Stopping an attempt: the weightiest reason wins, from any thread, before or after the engine has it."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import permutations

import pytest

from tasks.job import Job, JobStatus
from tasks.request import GenerationRequest
from worker.attempt import Attempt, Attempts, Stop, Stopped


def an_attempt(job_id: str = "j") -> Attempt:
    request = GenerationRequest(prompt="a boat")
    return Attempt(
        Job(id=job_id, status=JobStatus.RUNNING, request=request, created_at=datetime.now(UTC)), 1, solo=False
    )


@pytest.mark.parametrize("order", list(permutations(Stop)))
def test_the_weightiest_reason_wins_in_any_order(order: tuple[Stop, ...]) -> None:
    attempt = an_attempt()
    for reason in order:
        attempt.stop(reason)
    assert attempt.reason is Stop.LOST
    with pytest.raises(Stopped):
        attempt.check()


def test_a_stop_before_the_engine_knows_it_is_passed_on() -> None:
    attempt, calls = an_attempt(), []
    attempt.stop(Stop.ABORT)
    attempt.bind(lambda: calls.append("abort"))
    assert calls == ["abort"]


def test_the_register_holds_two_attempts_of_one_job_apart() -> None:
    attempts, first = Attempts(), an_attempt()
    second = Attempt(first.job, 2, solo=False)
    with attempts.holding(first):
        with attempts.holding(second):
            assert len(attempts) == 2
        assert attempts.live() == (first,)
    assert len(attempts) == 0

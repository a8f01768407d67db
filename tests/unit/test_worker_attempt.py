"""Stopping an attempt: the weightiest reason wins, from any thread, before or after the engine has it."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import permutations
from typing import Any

import pytest

from engine import Metrics
from tasks.job import Job, JobStatus
from tasks.request import GenerationRequest
from worker.attempt import Attempt, Attempts, Stop, Stopped

METRICS = Metrics(
    queue_ms=0, encode_ms=0, denoise_ms=0, decode_ms=0, total_ms=0, batch_rows_mean=2, device_seconds=0,
    mates=("gone.1", "other.1", "unknown.1"),
)  # fmt: skip


def an_attempt(job_id: str = "j", **fields: Any) -> Attempt:
    request = GenerationRequest(prompt="a boat")
    job = Job(id=job_id, status=JobStatus.RUNNING, request=request, created_at=datetime.now(UTC), **fields)
    return Attempt(job, 1, solo=False)


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


def test_mates_are_named_that_are_of_its_own_tenant_the_ended_ones_too() -> None:
    attempts = Attempts()
    mine, gone, other = an_attempt("mine"), an_attempt("gone"), an_attempt("other", tenant="somebody")
    with attempts.holding(mine), attempts.holding(other):
        with attempts.holding(gone):
            pass
        assert attempts.mates(mine) == ()
        mine.times.engine = METRICS
        assert attempts.mates(mine) == ("gone",)


def test_only_the_newest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.attempt._MAX_REMEMBERED", 2)
    attempts = Attempts()
    for name in ("gone", "x", "mine"):
        with attempts.holding(attempt := an_attempt(name)):
            pass
    attempt.times.engine = METRICS
    assert attempts.mates(attempt) == ()
    assert list(attempts._jobs) == ["x.1", "mine.1"]

"""What a node tells of jobs that it has and whose turn on the device has not come."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from engine import EngineStats, OutputStream
from engine import Progress as Steps
from tasks.job import Job, JobMetrics, JobStatus, Progress
from tasks.request import GenerationRequest
from worker.attempt import Attempt, Attempts
from worker.figures import NodeFigures
from worker.outlook import Outlook
from worker.progress import ProgressWriter
from worker.told import WAITS_FOR_PLACE, Teller

#: Two rows a forward, 0.1 s a step: 20 row-steps a second.
STATS = EngineStats(
    waiting_rows=0, running_rows=0, batches=1, rows_done=0, mean_batch_rows=2.0, step_ms=100.0, device="cpu",
    dtype="float32", model="tiny", mode="step", state="running", max_rows=2, step_rows=2.0,
)  # fmt: skip
REST_S = 0.5


class Store:
    """Keeps what was told last."""

    def __init__(self) -> None:
        self.told: dict[str, Progress] = {}

    def report(self, progress: Mapping[tuple[str, int], Progress]) -> None:
        self.told |= {job_id: one for (job_id, _), one in progress.items()}


class Desk:
    """A node of one model, whose attempts are put on and off by hand."""

    def __init__(self, stats: EngineStats | None = STATS) -> None:
        self.attempts, self.figures, self.store = Attempts(), NodeFigures(), Store()
        engine = SimpleNamespace(stats=lambda: self.stats)
        self.stats = stats
        engines: Any = {} if stats is None else {"tiny": engine}
        self.figures.succeeded("tiny", JobMetrics(upload_ms=REST_S * 1000))
        self.outlook = Outlook(self.attempts, engines, self.figures)
        self.progress = ProgressWriter(self.store)  # type: ignore[arg-type]
        self.teller = Teller(self.progress, engines, self.figures, self.attempts)

    def add(self, name: str, *, started: bool = False, steps: int = 10, **fields: Any) -> Attempt:
        request = GenerationRequest(prompt="a", model="tiny", num_inference_steps=steps, **fields)
        now = datetime.now(UTC)
        job = Job(id=name, status=JobStatus.RUNNING, request=request, created_at=now, started_at=now)
        attempt = Attempt(job, 1, solo=False)
        attempt.started = started
        self.attempts._live[attempt.key] = attempt
        return attempt

    def told(self, name: str) -> Progress:
        self.progress.tick()
        return self.store.told[name]


def test_who_waits_is_behind_all_that_came_before() -> None:
    desk = Desk()
    desk.add("a", started=True, num_outputs=2)
    desk.add("b", num_outputs=2)
    last = desk.add("c")
    assert desk.outlook.eta_s(last) == pytest.approx((20 + 20 + 10) / 20 + REST_S)


def test_a_free_row_is_no_wait() -> None:
    desk = Desk()
    desk.add("a", started=True)
    assert desk.outlook.eta_s(desk.add("b")) == pytest.approx(1.0 + REST_S)


def test_a_higher_priority_is_before_those_that_came_first() -> None:
    desk = Desk()
    desk.add("a", started=True, num_outputs=2)
    desk.add("b", num_outputs=2, priority=5)
    assert desk.outlook.eta_s(desk.add("c", priority=6)) == pytest.approx((20 + 10) / 20 + REST_S)


def test_what_is_done_counts_no_more() -> None:
    desk = Desk()
    first, done = desk.add("a", started=True, num_outputs=2), desk.add("b", started=True, num_outputs=2)
    first.work_left = 50
    done.seal = lambda: None
    assert desk.outlook.eta_s(desk.add("c")) == pytest.approx((50 + 10) / 20 + REST_S)
    speed = desk.outlook.speed("tiny")
    assert speed is not None
    assert (speed.busy_rows, speed.left, speed.max_rows) == (3, 60, 2)


def test_of_those_under_way_whoever_has_least_left_ends_first() -> None:
    desk = Desk()
    short, long = desk.add("a", started=True, steps=10), desk.add("b", started=True, steps=40)
    desk.add("c", started=True, steps=20)
    assert desk.outlook.eta_s(short) == pytest.approx(10 * 0.1 + REST_S)
    assert desk.outlook.eta_s(long) == pytest.approx(40 * 0.1 + REST_S), "more than the (10 + 20 + 40) / 20 of them all"
    desk.add("d", started=True, steps=30, num_outputs=2)
    assert desk.outlook.eta_s(long) == pytest.approx((10 + 20 + 60 + 40) / 20 + REST_S)
    long.work_left = 5
    assert desk.outlook.eta_s(long) == pytest.approx(5 * 0.1 + REST_S)


@pytest.mark.parametrize("stats", [None, replace(STATS, step_ms=None)])
def test_nobody_can_tell_without_a_measured_step(stats: EngineStats | None) -> None:
    desk = Desk(stats)
    attempt = desk.add("a")
    assert desk.outlook.eta_s(attempt) is None
    desk.teller.waiting(attempt)
    assert (desk.told("a").eta_s, desk.told("a").detail) == (None, WAITS_FOR_PLACE)


def test_it_is_told_when_the_estimate_turns_out_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    first = desk.add("a", started=True, num_outputs=2, steps=100)
    waits = desk.add("b")
    desk.teller.waiting(waits)
    assert desk.told("b").eta_s == pytest.approx((200 + 10) / 20 + REST_S)
    desk.store.told.clear()
    desk.teller.tick()
    assert "b" not in desk.store.told, "it holds"
    first.seal = lambda: None  # it was aborted, say
    desk.teller.tick()
    assert desk.told("b").eta_s == pytest.approx(1.0 + REST_S)


def test_an_estimate_that_runs_down_as_it_should_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, began = Desk(), time.monotonic()
    first = desk.add("a", started=True, num_outputs=2, steps=100)
    desk.teller.waiting(desk.add("b"))
    desk.progress.tick()
    desk.store.told.clear()
    monkeypatch.setattr("worker.told.time.monotonic", lambda: began + 5)
    first.work_left -= 100
    desk.teller.tick()
    desk.progress.tick()
    assert desk.store.told == {}
    first.work_left += 100  # it stood still
    desk.teller.tick()
    assert desk.told("b").eta_s == pytest.approx((200 + 10) / 20 + REST_S)


def test_nobody_waits_that_has_begun_or_ended() -> None:
    desk = Desk()
    desk.add("a", started=True, num_outputs=2)
    begun, ended = desk.add("b"), desk.add("c")
    for attempt in (begun, ended):
        desk.teller.waiting(attempt)
    begun.started = True
    desk.teller.note(begun, "encoding", 0, 10)
    assert (desk.told("b").stage, desk.told("b").detail) == ("encoding", None)
    assert desk.told("b").eta_s is not None
    desk.teller.forget(ended)
    desk.store.told.clear()
    desk.stats = replace(STATS, step_ms=900.0)
    desk.teller.tick()
    desk.progress.tick()
    assert desk.store.told == {}


def test_steps_are_told_by_looking_until_the_upload_begins() -> None:
    desk = Desk()
    attempt, stream = desk.add("a", started=True), OutputStream("a", lambda: None)
    desk.teller.waiting(attempt)
    desk.teller.follow(attempt, stream)
    for step in (3, 4):
        stream.put(Steps("a", "denoising", step, 10))
    desk.teller.tick()
    assert (desk.told("a").stage, desk.told("a").step, desk.told("a").detail) == ("denoising", 4, None)
    assert attempt.work_left == pytest.approx(6)
    desk.store.told.clear()
    desk.teller.tick()
    desk.progress.tick()
    assert desk.store.told == {}, "nothing new"
    stream.put(Steps("a", "denoising", 10, 10))
    desk.teller.uploading(attempt)
    desk.teller.tick()
    assert desk.told("a").stage == "uploading"

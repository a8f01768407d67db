"""The demo's plan, its verdict and its contact sheet, without running it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tasks.cli.demo.contact_sheet import Print, draw_sheet
from tasks.cli.demo.drive import Submitted
from tasks.cli.demo.plan import WRONG_FIELD, WRONG_REQUEST, Planned, Role, bundled_prompts, make_plan
from tasks.cli.demo.verdict import faults_of
from tasks.errors import InvalidRequest
from tasks.job import Job, JobMetrics, JobStatus, Output, Progress
from tasks.models import load_models
from tasks.request import parse_request
from tasks.resolve import resolve

MODELS = load_models(None)
PLAN = make_plan(bundled_prompts())
GOOD = Submitted(refusal=(422, {"field": WRONG_FIELD}), step_at_abort=3, status_before_abort="queued")


def test_the_mix() -> None:
    assert len(PLAN) == 24
    assert Counter(planned.role for planned in PLAN) == {
        Role.PLAIN: 21,
        Role.MANY: 1,
        Role.ABORT_RUNNING: 1,
        Role.ABORT_QUEUED: 1,
    }
    kept = [planned.request for planned in PLAN if planned.is_kept]
    assert len({(request["width"], request["height"]) for request in kept}) == 3
    assert len({request["num_inference_steps"] for request in kept}) == 2
    assert sum(request.get("num_outputs", 1) for request in kept) == 25


def test_the_model_takes_all_but_the_wrong_one() -> None:
    for planned in PLAN:
        resolve(parse_request(dict(planned.request)), MODELS)
    with pytest.raises(InvalidRequest) as caught:
        resolve(parse_request(dict(WRONG_REQUEST)), MODELS)
    assert caught.value.field == WRONG_FIELD


def _ended(planned: Planned, **changes: Any) -> Job:
    request = resolve(parse_request(dict(planned.request)), MODELS)
    outputs = tuple(
        Output(uri=f"s3://b/{n}.png", content_type="image/png", seed=n, size_bytes=1, sha256=f"{planned.number}-{n}")
        for n in range(request.num_outputs)
    )
    is_waiting = planned.role is Role.ABORT_QUEUED
    aborted = {"status": JobStatus.ABORTED, "progress": Progress(step=4, num_steps=100)}
    kept = {"status": JobStatus.SUCCEEDED, "outputs": outputs, "metrics": JobMetrics(batch_size_mean=4.0)}
    fields = (kept if planned.is_kept else aborted) | {"attempt": 0 if is_waiting else 1} | changes
    return Job(id=str(planned.number), request=request, created_at=datetime.now(UTC), **fields)


def test_no_fault_if_all_is_well() -> None:
    assert faults_of(PLAN, [_ended(planned) for planned in PLAN], GOOD) == []


@pytest.mark.parametrize(
    ("number", "changes", "words"),
    [
        (3, {"status": JobStatus.FAILED}, "job 03 (plain): is failed"),
        (2, {"outputs": ()}, "job 02 (plain)"),
        (1, {"status": JobStatus.SUCCEEDED}, "job 01 (abort while running): is succeeded, not aborted"),
        (1, {"progress": Progress(step=100, num_steps=100)}, "ran all its 100 steps"),
        (1, {"attempt": 0}, "was not running"),
        (24, {"attempt": 1}, "was not waiting"),
    ],
)
def test_each_fault_is_named(number: int, changes: dict[str, Any], words: str) -> None:
    jobs = [_ended(planned, **(changes if planned.number == number else {})) for planned in PLAN]
    (fault,) = faults_of(PLAN, jobs, GOOD)
    assert words.replace("(plain)", f"({PLAN[number - 1].role})") in fault


def test_an_accepted_wrong_request_is_a_fault() -> None:
    (fault,) = faults_of(PLAN, [_ended(planned) for planned in PLAN], Submitted((), (202, {}), 1, "queued"))  # type: ignore[arg-type]
    assert "answered 202" in fault


def test_no_shared_batch_is_a_fault() -> None:
    jobs = [_ended(planned, metrics=JobMetrics(batch_size_mean=1.0)) for planned in PLAN]
    assert faults_of(PLAN, jobs, GOOD) == ["no two jobs shared a batch"]


def test_the_sheet_holds_every_picture(tmp_path: Path) -> None:
    prints = []
    for number, size in enumerate([(96, 96)] * 6 + [(128, 96), (96, 128)]):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", size, (200, 20 * number, 30)).save(path)
        prints.append(Print(path, "a caption that is quite long and takes two lines of the sheet at least", "detail"))
    sheet = draw_sheet(prints, "Title", "words")
    assert sheet.width == 2 * 40 + 5 * 256 + 4 * 28
    colours = {colour for _, colour in sheet.getcolors(1_000_000) or ()}
    assert {(200, 20 * number, 30) for number in range(8)} <= colours

"""What people and shells get to see: one line a job, one code a command."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from tasks.cli.bars import BarBoard
from tasks.cli.board import LineBoard
from tasks.cli.exits import code_of, code_of_statuses
from tasks.cli.output import job_line, print_job, print_table, shortened
from tasks.errors import ConfigError, InvalidRequest, QueueFull, SafelightError, StoreUnavailable, UnknownJob
from tasks.job import Job, JobMetrics, JobStatus, Progress
from tasks.request import GenerationRequest


def a_job(status: str = "succeeded", *, job_id: str = "J1", prompt: str = "a boat", **changes: Any) -> Job:
    request = GenerationRequest(prompt=prompt, height=64, width=96, num_inference_steps=8, seed=1, num_outputs=2)
    return Job(id=job_id, status=JobStatus(status), request=request, created_at=datetime.now(UTC), **changes)


@pytest.mark.parametrize("status", list(JobStatus))
def test_a_job_is_one_line_whatever_its_prompt_holds(status: JobStatus) -> None:
    line = job_line(a_job(status, prompt="a\nboat\r\x1b[31m red \u2028 end" + "x" * 500))
    assert line.isprintable()
    assert len(line) < 200


def test_a_line_says_what_it_took() -> None:
    metrics = JobMetrics(total_ms=2340.0, queue_ms=310.0, batch_size_mean=3.5)
    assert "96×64 ×2 8 steps  2.3 s, queued 0.3 s, batch 3.5" in job_line(a_job(metrics=metrics))


def test_json_is_one_line_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    job = a_job(prompt="zwei\nZeilen ü")
    print_job(job, as_json=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == job.to_json()


def test_columns_line_up(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"a": "long value", "b": 1}, {"a": "x", "b": 22}])
    assert capsys.readouterr().out == "a           b\nlong value  1\nx           22\n"


def test_shortened_keeps_the_width() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequest("height", "is odd"), 2),
        (ConfigError("SAFELIGHT_LEASE_S: bad"), 2),
        (StoreUnavailable("away"), 4),
        (UnknownJob("x"), 1),
        (QueueFull(3), 1),
        (SafelightError("?"), 1),
    ],
)
def test_codes_of_errors(error: SafelightError, code: int) -> None:
    assert code_of(error) == code


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([], 0),
        (["succeeded"], 0),
        (["queued", "running"], 0),
        (["succeeded", "aborted"], 3),
        (["aborted", "failed"], 1),
    ],
)
def test_codes_of_jobs(statuses: list[str], code: int) -> None:
    assert code_of_statuses(statuses) == code


def test_few_jobs_are_told_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    board = LineBoard(2)
    for status in ("queued", "queued", "running", "running", "succeeded"):
        board.show(a_job(status))
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == ["queued", "running", "succeeded"]


def test_the_end_of_a_single_job_is_left_to_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    board = LineBoard(1)
    for status in ("queued", "running", "succeeded"):
        board.show(a_job(status))
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == ["queued", "running"]


def test_many_jobs_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    board = LineBoard(10, clock=lambda: now)
    for number in range(10):
        board.show(a_job("queued", job_id=f"J{number}"))
    board.show(a_job("running", job_id="J1"))
    now = 5.0
    board.show(a_job("succeeded", job_id="J1"))
    assert capsys.readouterr().err.splitlines() == ["10 queued", "9 queued, 1 succeeded"]


def test_bars_take_any_prompt() -> None:
    console = Console(force_terminal=True, width=120, height=10, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with BarBoard(console) as board:
        board.show(a_job("running", prompt="[red]markup[/]", progress=Progress(stage="denoising", step=3, num_steps=8)))
        board.show(a_job("failed", job_id="J2"))
    text = console.export_text()
    assert "[red]markup[/]" in text
    assert "denoising" in text
    assert "failed" in text

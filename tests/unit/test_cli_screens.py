"""What live commands draw, for any width: bars, `top`; and what the parser's refusals look like."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from tasks.cli.bars import BarBoard, ThumbView
from tasks.cli.board import EventBoard
from tasks.cli.job_bar import bar_line
from tasks.cli.output import job_line
from tasks.cli.pictures.terminal import Protocol
from tasks.cli.pictures.thumb import thumb_of
from tasks.cli.top_look import Look
from tasks.cli.top_view import frame
from tasks.job import JobStatus, Progress
from tasks.store import Event, QueueStats
from tests.unit.test_cli_output import a_job
from tests.unit.test_cli_pictures import TINY

RUNNING = Progress(stage="denoising", step=3, num_steps=8, fraction=0.4, eta_s=12.0)


@pytest.mark.parametrize("width", [20, 40, 79, 80, 120, 200])
@pytest.mark.parametrize("status", list(JobStatus))
def test_lines_keep_to_the_width(width: int, status: JobStatus) -> None:
    job = a_job(status, prompt="long " * 90, progress=RUNNING, job_id="01JZ8Q00000000000000000000")
    assert bar_line(job, width).cell_len <= width
    assert len(job_line(job, width)) <= width


def test_a_bar_says_stage_step_time_and_attempt() -> None:
    text = bar_line(a_job("running", progress=RUNNING, attempt=2), 80).plain
    assert "denoising 3/8" in text
    assert "about 12 s, attempt 2" in text
    assert (text.count("━"), text.count("─")) == (6, 8)
    queued = bar_line(a_job("queued", progress=Progress(queue_position=3, eta_s=300)), 80).plain
    assert "queued" in queued and "3 ahead, about 5 min" in queued
    assert "next" in bar_line(a_job("queued", progress=Progress(queue_position=0)), 80).plain
    wanted = a_job("running", progress=RUNNING, abort_requested=True)
    assert bar_line(wanted, 80).plain.endswith("aborting") and "aborting" in job_line(wanted)


def test_columns_of_bars_stand_below_each_other() -> None:
    lines = [bar_line(a_job("running", prompt=p, progress=RUNNING), 100).plain for p in ("a", "long " * 30)]
    assert lines[0].index("denoising") == lines[1].index("denoising")


def a_console(height: int = 10) -> Console:
    return Console(force_terminal=True, width=80, height=height, record=True, file=open("/dev/null", "w"))


def test_live_jobs_are_drawn_and_the_rest_is_counted() -> None:
    board = BarBoard(a_console(height=6))
    board.show(a_job("queued", job_id="q", prompt="waits", progress=Progress(queue_position=0)))
    board.show(a_job("running", job_id="r", prompt="runs", progress=RUNNING))
    for number in range(5):
        board.show(a_job("queued", job_id=f"q{number}", progress=Progress(queue_position=number + 1)))
    console = a_console()
    console.print(board._drawn())
    lines = console.export_text().splitlines()
    assert lines[0].startswith("runs") and lines[1].startswith("waits")
    assert lines[-1] == "and 3 more"


@pytest.mark.parametrize("protocol", list(Protocol))
def test_a_preview_in_a_live_screen_takes_its_rows(protocol: Protocol) -> None:
    thumb = thumb_of(TINY, protocol, 8, 3)
    view, console = ThumbView(thumb), a_console()
    for is_first in (True, False):
        lines = console.render_lines(view, pad=False)
        text = "".join(segment.text for line in lines for segment in line)
        assert thumb.lines or (thumb.once in text) is (is_first or not thumb.once)
        assert sum(not any(segment.control for segment in line) for line in lines) == thumb.rows


def test_events_are_lines_and_the_last_has_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    import json

    job = a_job("succeeded")
    events = (Event("1-0", "status", {"status": "running"}), Event("2-0", "preview", {"image": "x"}))
    EventBoard().show(job, (*events, Event("3-0", "done", {})))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["status", "preview", "done"]
    assert lines[-1] == {"event": "done", **job.to_json()}
    EventBoard(previews=False).show(a_job("running"), events)
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == ["status"]


def a_look(**changes: Any) -> Look:
    worker = {
        "name": "gpu-1:7:abc",
        "state": "ready",
        "jobs": 3,
        "models": {
            "sdxl": {
                "mode": "step",
                "device": "cuda:0",
                "running_rows": 4,
                "step_ms": 51.2,
                "memory": {"used_bytes": 3 * 2**30, "free_bytes": 13 * 2**30},
                "speed": {"max_rows": 8},
            },
            "loads": {},
        },
    }
    now = datetime.now(UTC)
    parts: dict[str, Any] = {
        "at": now,
        "queues": (QueueStats("sdxl", 12, 3, 4.2),),
        "workers": (worker,),
        "running": tuple(a_job("running", job_id=f"r{n}", progress=RUNNING) for n in range(30)),
        "ended": tuple(a_job("failed", job_id=f"e{n}", finished_at=now - timedelta(seconds=n)) for n in range(5)),
    }
    return Look(**parts | changes)


@pytest.mark.parametrize(("rows", "shown"), [(0, "▯▯▯▯▯▯▯▯ 0/8"), (8, "▮▮▮▮▮▮▮▮ 8/8"), (13, "▮▮▮▮▮▮▮▮ 8/8 +5")])
def test_top_shows_how_full_a_batch_is(rows: int, shown: str) -> None:
    look = a_look()
    look.workers[0]["models"]["sdxl"]["running_rows"] = rows
    line = next(line.plain for line in frame(look, 140) if "sdxl step" in line.plain)
    assert f"batch {shown}  " in line


def test_top_shows_what_an_operator_asks() -> None:
    text = "\n".join(line.plain for line in frame(a_look(), 140))
    for words in ("12 queued", "oldest waits 4 s", "gpu-1:7:abc", "▮▮▮▮▯▯▯▯ 4/8", "51 ms a step", "3.0/16 GiB"):
        assert words in text
    assert text.count("denoising 3/8") == 30
    assert "e4" in text
    assert "q: quit" not in text, "one look has no keys"
    assert "q: quit" in frame(a_look(), 140, 40)[0].plain


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 12), (20, 5)])
def test_top_fits_every_screen(width: int, height: int) -> None:
    lines = frame(a_look(), width, height, "Redis is away")
    assert len(lines) <= height
    assert all(line.cell_len <= width for line in lines)
    if height >= 24:
        assert "and" in "\n".join(line.plain for line in lines)
        assert lines[-1].plain.startswith("e")


def test_top_of_nothing_says_so() -> None:
    text = "\n".join(line.plain for line in frame(a_look(workers=(), running=(), ended=()), 80, 24))
    assert "WORKERS  none" in text and "RUNNING (0)  none" in text


@pytest.mark.parametrize(
    ("words", "start", "field"),
    [
        (["submit", "x", "--steps", "many"], "num_inference_steps: ", "num_inference_steps"),
        (["submit", "x", "--set", "seed"], "set: 'seed' is not FIELD=VALUE", "set"),
        (["ls", "--limit", "0"], "--limit: ", "--limit"),
        (["watch"], "name jobs, or a --group, or --all (see: safelight watch --help)", None),
        (["wach"], "no such command 'wach'", None),
        (["submit", "x", "--bogus"], "no such option: --bogus", None),
        (["submit", "x", "--cfg-scale", "7"], "no such option: --cfg-scale; did you mean --guidance-scale?", None),
        (["submit", "x", "--size", "9"], "no such option: --size; did you mean --width and --height?", None),
        (["submit", "x", "--set", "sampler=euler"], "sampler: is not a field of a request; did you mean", "sampler"),
        (["submit"], "give one prompt", None),
        (["submit", "x", "--batch", "y"], "--batch: ", "--batch"),
        (["submit", "--batch", "nowhere"], "--batch: cannot read nowhere", None),
    ],
)
def test_a_refusal_is_one_line(
    words: list[str], start: str, field: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    from tasks.cli import main

    monkeypatch.setenv("SAFELIGHT_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setattr(sys, "argv", ["safelight", *words, "--json"])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert left.value.code == 2
    assert said.err.startswith(f"safelight: {start}")
    assert len(said.err.splitlines()) == 1
    assert json.loads(said.out)["error"].get("field") == field

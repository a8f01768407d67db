"""The demo as a newcomer runs it: all as planned, pictures to look at, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import psutil
import pytest
from PIL import Image

DEADLINE_S = 500


def descendants(process: psutil.Process) -> set[psutil.Process]:
    try:
        return set(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return set()


def run_and_count(out: IO[bytes], err: IO[bytes], home: Path, temp: Path) -> tuple[int, set[psutil.Process]]:
    """The exit code, and every process that was ever seen below the demo."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "tasks.cli.demo", "--exit", "--json"],
        stdout=out,
        stderr=err,
        cwd=home,
        env={**os.environ, "TMPDIR": str(temp)},
    )
    seen: set[psutil.Process] = set()
    watched = psutil.Process(demo.pid)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while demo.poll() is None and time.monotonic() < deadline:
            seen |= descendants(watched)
            time.sleep(0.2)
    finally:
        demo.kill()
    return demo.wait(), seen


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.timeout(DEADLINE_S + 60)
def test_the_demo(tmp_path: Path) -> None:
    home, temp = tmp_path / "home", tmp_path / "temp"
    home.mkdir()
    temp.mkdir()
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        code, processes = run_and_count(out, err, home, temp)
    words = (tmp_path / "err").read_text("utf-8")
    assert code == 0, words
    assert "\x1b" not in words  # no terminal, no control codes

    jobs = [json.loads(line) for line in (tmp_path / "out").read_text("utf-8").splitlines()]
    _check_jobs(jobs)
    _check_pictures(home / "outputs", jobs)
    assert re.search(r"refused +as planned: 422 height", words)

    ports = [int(port) for port in re.findall(r"(?:port |127\.0\.0\.1:)(\d+)", words)]
    assert len(set(ports)) >= 3  # redis, s3, api
    assert not [port for port in ports if listens(port)]
    assert len(processes) >= 4
    _, left = psutil.wait_procs(processes, timeout=5)
    assert not [each for each in left if each.status() != psutil.STATUS_ZOMBIE]
    assert os.listdir(temp) == []
    assert os.listdir(home) == ["outputs"]


def _check_jobs(jobs: list[dict[str, Any]]) -> None:
    assert len(jobs) == 24
    statuses = [job["status"] for job in jobs]
    assert (statuses.count("succeeded"), statuses.count("aborted")) == (22, 2)
    long, waiting = (job for job in jobs if job["status"] == "aborted")
    assert long["started_at"] is not None
    assert waiting["started_at"] is None
    assert long["outputs"] == waiting["outputs"] == []
    assert max(job["metrics"]["batch_size_mean"] or 0 for job in jobs) > 1


def _check_pictures(folder: Path, jobs: list[dict[str, Any]]) -> None:
    named = {Path(file).name for job in jobs for file in job["files"]}
    assert len(named) == 25
    assert {path.name for path in folder.iterdir()} == named | {"contact-sheet.png"}
    sizes = set()
    for path in folder.iterdir():
        with Image.open(path) as picture:
            picture.load()
            sizes.add(picture.size)
    assert len(sizes) == 4  # three of pictures, and the sheet

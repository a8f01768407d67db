"""What the command line does on a terminal of its own, and with many jobs: against real servers."""

from __future__ import annotations

import base64
import fcntl
import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from tasks import Client
from tasks.job import Job, JobStatus, Progress
from tasks.settings import Settings
from tests.integration.test_cli import PICTURE, Cli, cli, client, worker

__all__ = ["cli", "client"]


class Terminal:
    """A `safelight` on a pseudo-terminal: what it has drawn so far, and keys for it."""

    def __init__(self, words: tuple[str, ...], cwd: Path, columns: int, rows: int, env: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.drawn = ""
        self.resize(columns, rows)
        environ = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **env}
        for name in ("NO_COLOR", "COLUMNS", "LINES", "TMUX"):
            environ.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tasks.cli", *words],
            cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, words: str, timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        start = len(self.drawn)
        while words not in self.drawn[start:]:
            assert time.monotonic() < deadline and self._read(), f"no {words!r} in {self.drawn[start:]!r}"

    def key(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        while self._read():
            pass
        return self.process.wait(20)

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], 20)[0]:
            return False
        try:
            body = os.read(self._ours, 65_536)
        except OSError:  # Linux's end of a terminal
            return False
        self.drawn += body.decode("utf-8", "replace")
        return bool(body)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@contextmanager
def terminal(*words: str, cwd: Path, columns: int = 80, rows: int = 24, **env: str) -> Iterator[Terminal]:
    running = Terminal(words, cwd, columns, rows, env)
    try:
        yield running
    finally:
        running.close()


def a_preview() -> dict[str, object]:
    body = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 30, 30)).save(body, "JPEG")
    return {"step": 3, "image": "data:image/jpeg;base64," + base64.b64encode(body.getvalue()).decode()}


def test_watch_draws_bars_and_previews(cli: Cli, client: Client, tmp_path: Path) -> None:
    ids = [client.submit(prompt=f"number {n}", group="g").id for n in range(3)]
    with terminal("watch", "--group", "g", cwd=tmp_path, TERM="xterm-kitty") as screen:
        screen.until("number 2")
        client.store.claim(ids[0], "w", 60)
        client.store.report({(ids[0], 1): Progress(stage="denoising", step=3, num_steps=20, fraction=0.2)})
        screen.until("denoising 3/20")
        client.store.preview(ids[0], 1, a_preview())
        screen.until("\x1b_Ga=t")
        for job_id in ids:
            client.abort(job_id)
        client.store.release(ids[0], 1)  # the attempt sees the wish
        assert screen.end() == 3
    assert all(f"{job_id}  aborted" in screen.drawn for job_id in ids)


def test_no_picture_in_a_pipe(cli: Cli, client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-kitty")
    with worker(client, settings, JobStatus.SUCCEEDED):
        said = cli("submit", "a boat", "--preview")
    assert said.code == 0
    assert "\x1b" not in said.out + said.err
    assert client.get(said.out.split()[0]).request.preview_every > 0


def test_top_follows_the_screen_and_leaves_at_q(cli: Cli, client: Client, tmp_path: Path) -> None:
    client.submit(prompt="a boat")
    with terminal("top", "--interval", "0.1", cwd=tmp_path) as screen:
        screen.until("1 queued")
        client.store.beat("gpu-7", {"name": "gpu-7", "state": "ready", "jobs": 0, "models": {}}, 60)
        screen.until("gpu-7")
        screen.resize(100, 30)
        screen.until("running" + 35 * " ")  # the title reaches over 100 columns
        screen.key("q")
        assert screen.end() == 0
    assert screen.drawn.endswith("\x1b[?25h\x1b[?1049l")  # the cursor is back, and the screen from before


def test_top_once(cli: Cli, client: Client) -> None:
    client.submit(prompt="a boat")
    assert "1 queued" in cli("top").out
    said = cli("top", "--once", "--json").json
    assert (said["queues"][0]["queued"], said["running"], said["workers"]) == (1, [], [])


def test_ctrl_c_aborts_if_that_was_said(cli: Cli, client: Client, tmp_path: Path) -> None:
    job_id = client.submit(prompt="a boat").id
    with terminal("watch", job_id, "--abort-on-interrupt", cwd=tmp_path) as screen:
        screen.until("a boat")
        screen.process.send_signal(signal.SIGINT)
        assert screen.end() == 3
    assert client.get(job_id).status is JobStatus.ABORTED


def test_watch_all_json_tells_every_event(cli: Cli, client: Client, settings: Settings) -> None:
    ids = {client.submit(prompt=f"{n}").id for n in range(3)}
    with worker(client, settings, JobStatus.SUCCEEDED):
        lines = cli("watch", "--all", "--json").lines
    done = [line for line in lines if line["event"] == "done"]
    assert {line["id"] for line in done} == ids
    assert all(line["status"] == "succeeded" and line["outputs"] for line in done)
    assert cli("watch", "--all").code == 0


def test_many_jobs_are_followed_in_their_order_and_left_with_a_word_for_all(
    cli: Cli, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = client.submit_many({"prompt": f"{n}", "group": "a crowd"} for n in range(12))
    seen: list[str] = []

    def interrupted(_self: object, job: Job, _events: object = ()) -> None:
        seen.append(job.id)
        if len(seen) == 12:
            raise KeyboardInterrupt

    monkeypatch.setattr("tasks.cli.board.LineBoard.show", interrupted)
    for words, again, end in (
        (["--group", "a crowd"], "safelight watch --group 'a crowd'\n", "safelight abort --group 'a crowd'\n"),
        (["--all"], "safelight watch --all\n", "--all\n"),
    ):
        seen.clear()
        said = cli("watch", *words)
        assert seen == [job.id for job in jobs]
        assert said.code == 130 and again in said.err and said.err.endswith(end)


def test_a_batch(cli: Cli, client: Client, settings: Settings, tmp_path: Path) -> None:
    lines = [json.dumps({"prompt": "one", "seed": 1}), "", json.dumps("two"), json.dumps({"prompt": "x", "steps": 3})]
    (tmp_path / "b.jsonl").write_text("\n".join(lines), "utf-8")
    said = cli("submit", "--batch", "b.jsonl")
    assert (said.code, said.out) == (2, "")
    assert said.err == "safelight: line 4: steps: is not a field of a request; did you mean num_inference_steps?\n"
    assert not client.store.list().jobs
    (tmp_path / "b.jsonl").write_text("\n".join(lines[:3]), "utf-8")
    with worker(client, settings, JobStatus.SUCCEEDED):
        said = cli("submit", "--batch", "b.jsonl", "--steps", "5", "--set", "seed=9", "-o", "out")
    jobs = client.store.list().jobs[::-1]
    assert [(job.request.prompt, job.request.seed, job.request.num_inference_steps) for job in jobs] == [
        ("one", 1, 5),
        ("two", 9, 5),
    ]
    assert [line.split()[:3] for line in said.out.splitlines()[1:]] == [
        [str(n), job.id, "succeeded"] for n, job in enumerate(jobs, 1)
    ]
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_every_field_can_be_set(cli: Cli, client: Client, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("a boat\n", "utf-8")
    said = cli(
        "submit", "--prompt-file", "words.txt", "--set", "group=7", "--set", 'metadata={"a": 1}', "--set", "seed=3"
    )
    request = client.get(said.out.strip()).request
    assert (request.prompt, request.group, request.metadata, request.seed) == ("a boat", "7", {"a": 1}, 3)
    assert cli("submit", "x", "--set", "colour=red").err == "safelight: colour: is not a field of a request\n"


def test_nothing_is_written_over(cli: Cli, client: Client, settings: Settings, tmp_path: Path) -> None:
    with worker(client, settings, JobStatus.SUCCEEDED):
        job_id = cli("submit", "a boat", "--wait", "--json").json["id"]
    (tmp_path / f"{job_id}-0.png").write_bytes(b"mine")
    for _ in range(2):
        said = cli("watch", job_id, "-o", ".")
        assert f"saved {job_id}-0.2.png" in said.err
    assert (tmp_path / f"{job_id}-0.png").read_bytes() == b"mine"
    assert (tmp_path / f"{job_id}-0.2.png").read_bytes() == PICTURE
    assert len(list(tmp_path.iterdir())) == 2


def test_completion_knows_models_and_jobs(cli: Cli, client: Client, tmp_path: Path) -> None:
    ended, live = (client.submit(prompt=str(n)).id for n in range(2))
    client.abort(ended)
    for line, wanted in (("safelight submit x --model t", {"tiny"}), ("safelight abort ", {live})):
        env = {
            **os.environ,
            "_SAFELIGHT_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(line.count(" ")),
        }
        done = subprocess.run(
            [sys.executable, "-m", "tasks.cli"], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert set(done.stdout.split()) == wanted
        assert done.stderr == ""


def test_completion_of_no_redis_is_empty_and_silent(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tasks.cli import complete

    monkeypatch.setenv("SAFELIGHT_REDIS_URL", "redis://127.0.0.1:1/0")
    assert complete.job_ids("") == []
    monkeypatch.setenv("SAFELIGHT_MODELS", "/nowhere.toml")
    assert complete.models("") == []
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")

"""Every command against real servers: what is on stdout, and the exit code. A thread plays the worker."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tasks import Client
from tasks.artifacts import ArtifactStore
from tasks.cli import main
from tasks.job import Job, JobError, JobStatus, Output, Progress
from tasks.local.environment import write_env_file
from tasks.settings import Settings
from tasks.store import Claimed, Outcome

PICTURE = b"not really a picture"


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Said]


@pytest.fixture
def cli(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs the command in this process, in an empty folder, with the test's servers in the environment."""
    for name in ("redis_url", "s3_endpoint_url", "s3_bucket"):
        monkeypatch.setenv(f"SAFELIGHT_{name.upper()}", getattr(settings, name))
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["safelight", *words])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        return Said(int(left.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    with Client(settings) as client:
        yield client


def end(client: Client, artifacts: ArtifactStore, job_id: str, status: JobStatus) -> None:
    """Claim a job and end it, as a worker would."""
    claimed = client.store.claim(job_id, "w", 30)
    assert isinstance(claimed, Claimed)
    client.store.report({(job_id, 1): Progress(stage="denoising", step=3, num_steps=20, fraction=0.2)})
    if status is JobStatus.SUCCEEDED:
        sha256 = hashlib.sha256(PICTURE).hexdigest()
        uri = artifacts.put(f"{job_id}/1/0.png", PICTURE, "image/png", sha256)
        output = Output(uri=uri, content_type="image/png", seed=7, size_bytes=len(PICTURE), sha256=sha256)
        client.store.finish(job_id, 1, Outcome(status, outputs=[output]))
    else:
        error = JobError(type="model_error", message="NaN", attempt=1) if status is JobStatus.FAILED else None
        client.store.finish(job_id, 1, Outcome(status, error=error))


@contextlib.contextmanager
def worker(client: Client, settings: Settings, status: JobStatus) -> Iterator[None]:
    """Ends every queued job with `status`, until the block is left."""
    leave = threading.Event()
    artifacts = ArtifactStore(settings)
    artifacts.ensure_bucket()

    def work() -> None:
        while not leave.wait(0.05):
            for job in client.store.list(status=JobStatus.QUEUED).jobs:
                end(client, artifacts, job.id, status)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        leave.set()
        thread.join(10)


def test_submit_prints_the_id_alone(cli: Cli, client: Client) -> None:
    said = cli("submit", "a boat", "--seed", "0", "--steps", "5", "--group", "g", "--metadata", '{"a": [1]}')
    assert said.code == 0
    request = client.get(said.out.strip()).request
    assert (request.seed, request.num_inference_steps, request.group, request.metadata) == (0, 5, "g", {"a": [1]})
    assert f"safelight watch {said.out.strip()}" in said.err


def test_submit_json_is_the_job(cli: Cli, client: Client) -> None:
    said = cli("submit", "a boat", "--json")
    assert said.json == client.get(said.json["id"]).to_json() | {"progress": said.json["progress"]}


def test_an_idempotency_key_gives_the_same_job(cli: Cli) -> None:
    first, second = (cli("submit", "a boat", "--idempotency-key", "k").out for _ in range(2))
    assert first == second
    other = cli("submit", "another", "--idempotency-key", "k")
    assert other.code == 1


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["submit", "x", "--height", "97"], "height"),
        (["submit", "x", "--priority", "12"], "priority"),
        (["submit", ""], "prompt"),
        (["submit", "x", "--model", "nope"], "model"),
        (["submit", "x", "--image", "missing.png"], "image"),
        (["submit", "x", "--mask-image", "s3://b/k"], "mask_image"),
    ],
)
def test_a_wrong_field_is_usage_and_named(cli: Cli, words: list[str], field: str) -> None:
    said = cli(*words)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"safelight: {field}: ")
    assert len(said.err.splitlines()) == 1
    assert cli(*words, "--json").json["error"]["field"] == field


@pytest.mark.parametrize(
    "words", [["submit"], ["abort"], ["ls", "--status", "odd"], ["ls", "--limit", "0"], ["frobnicate"], ["status"]]
)
def test_usage(cli: Cli, words: list[str]) -> None:
    said = cli(*words)
    assert (said.code, said.out) == (2, "")


@pytest.mark.parametrize(("status", "code"), [(JobStatus.SUCCEEDED, 0), (JobStatus.FAILED, 1), (JobStatus.ABORTED, 3)])
def test_the_code_is_that_of_the_job(
    cli: Cli, client: Client, settings: Settings, status: JobStatus, code: int
) -> None:
    with worker(client, settings, status):
        said = cli("submit", "a boat", "--wait", "--json")
    assert (said.code, said.json["status"]) == (code, status)
    for words in (["status"], ["watch"]):
        again = cli(*words, said.json["id"], "--json")
        assert (again.code, again.json["status"]) == (code, status)
    plain = cli("watch", said.json["id"])
    assert plain.code == code
    assert plain.out.startswith(f"{said.json['id']}  {status}")


def test_results_are_saved(cli: Cli, client: Client, settings: Settings, tmp_path: Path) -> None:
    with worker(client, settings, JobStatus.SUCCEEDED):
        said = cli("submit", "a boat", "-o", "pictures/new")
    job_id = said.out.split()[0]
    assert said.code == 0
    assert (tmp_path / "pictures" / "new" / f"{job_id}-0.png").read_bytes() == PICTURE
    assert [path.name for path in (tmp_path / "pictures" / "new").iterdir()] == [f"{job_id}-0.png"]


def test_watch_follows_many(cli: Cli, client: Client, settings: Settings) -> None:
    ids = [client.submit(prompt=f"{number}").id for number in range(12)]
    with worker(client, settings, JobStatus.SUCCEEDED):
        said = cli("watch", *ids)
    assert said.code == 0
    assert [line.split()[0] for line in said.out.splitlines() if not line.startswith(" ")] == ids


def test_watch_json_comes_as_jobs_end(cli: Cli, client: Client, settings: Settings) -> None:
    ids = {client.submit(prompt=f"{number}").id for number in range(3)}
    with worker(client, settings, JobStatus.SUCCEEDED):
        said = cli("watch", *ids, "--json")
    assert {job["id"] for job in said.lines} == ids
    assert said.err == ""


@pytest.mark.parametrize("folder", ["afile", "afile/pictures", "/proc/pictures"])
def test_a_folder_that_cannot_be_is_told_before_a_job_runs_for_it(
    cli: Cli, client: Client, tmp_path: Path, folder: str
) -> None:
    (tmp_path / "afile").touch()
    said = cli("submit", "a fish", "-o", folder)
    assert said.code == 2 and f"--output {folder}: " in said.err and said.out == ""
    assert cli("watch", "--all", "-o", folder).code == 2
    assert cli("ls", "--json").lines == []


@pytest.mark.parametrize("option", ["--image", "--prompt-file", "--batch"])
def test_a_file_without_an_end_is_refused(cli: Cli, option: str) -> None:
    said = cli("submit", *(["x"] if option == "--image" else []), option, "/dev/zero")
    assert said.code == 2 and "bytes" in said.err


def test_abort_by_id_and_group(cli: Cli, client: Client) -> None:
    first = client.submit(prompt="1").id
    grouped = {client.submit(prompt="2", group="g").id, client.submit(prompt="3", group="g").id}
    said = cli("abort", first)
    assert (said.code, said.out) == (0, f"{first}  aborted\n")
    said = cli("abort", "--group", "g", "--json")
    assert said.code == 0
    assert {job["id"]: job["status"] for job in said.lines} == dict.fromkeys(grouped, "aborted")
    assert cli("abort", "--group", "g").code == 0


def test_an_unknown_job_keeps_no_other_from_its_end(cli: Cli, client: Client) -> None:
    first, last = (client.submit(prompt="x").id for _ in range(2))
    grouped = client.submit(prompt="x", group="g").id
    said = cli("abort", first, "nope", last, "--group", "g")
    assert said.code == 1 and "no job 'nope'" in said.err
    assert sorted(said.out.splitlines()) == sorted(f"{each}  aborted" for each in (first, last, grouped))


def test_abort_of_a_running_job_is_a_wish(cli: Cli, client: Client) -> None:
    job_id = client.submit(prompt="1").id
    client.store.claim(job_id, "w", 30)
    assert cli("abort", job_id).out == f"{job_id}  will end at its next step\n"
    assert cli("abort", job_id, "--json").json["abort_requested"]
    assert "aborting" in cli("status", job_id).out


def test_ls(cli: Cli, client: Client) -> None:
    ids = [client.submit(prompt=f"{number}", group="odd" if number % 2 else "even").id for number in range(6)]
    client.abort(ids[1])
    assert [job["id"] for job in cli("ls", "--json").lines] == ids[::-1]
    assert [job["id"] for job in cli("ls", "--group", "odd", "--limit", "2", "--json").lines] == [ids[5], ids[3]]
    said = cli("ls", "--status", "aborted")
    assert [line.split()[:2] for line in said.out.splitlines()] == [[ids[1], "aborted"]]
    assert cli("ls", "--group", "nobody").out == ""


def test_replay_repeats_the_resolved_request(cli: Cli, client: Client) -> None:
    job = client.submit(prompt="a boat")
    said = cli("replay", job.id, "--json")
    assert said.json["id"] != job.id
    assert client.get(said.json["id"]).request == job.request


@pytest.mark.parametrize("command", ["status", "watch", "abort", "replay"])
def test_an_unknown_job(cli: Cli, command: str) -> None:
    said = cli(command, "nobody")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("safelight: no job 'nobody'")


def test_explain_says_why_it_waits(cli: Cli, client: Client) -> None:
    job_id = client.submit(prompt="a boat").id
    assert "no worker is up" in cli("explain", job_id).out
    assert cli("explain", job_id, "--json").json["reasons"][0]["code"] == "no_worker"
    assert cli("explain", "nobody").code == 1


def test_models_and_queues(cli: Cli, client: Client) -> None:
    assert [model["name"] for model in cli("models", "--json").lines] == ["tiny"]
    assert "96×96" in cli("models").out
    client.submit(prompt="1")
    client.store.beat("w", {"name": "w", "state": "ready", "jobs": 0}, 10)
    said = cli("queues", "--json").json
    assert (said["queues"][0]["queued"], said["workers"][0]["name"]) == (1, "w")
    assert "worker w: ready" in cli("queues").out


@pytest.mark.parametrize(
    "words",
    [["submit", "x"], ["status", "x"], ["watch", "x"], ["abort", "x"], ["ls"], ["replay", "x"], ["queues"], ["api"]],
)
def test_an_unreachable_redis_is_one_line(cli: Cli, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("SAFELIGHT_REDIS_URL", f"redis://{place}/0")
        said = cli(*words)
    assert (said.code, said.out) == (4, "")
    assert place in said.err
    assert "safelight up" in said.err
    assert len(said.err.splitlines()) == 1


def test_a_bad_setting_is_usage(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT_LEASE_S", "soon")
    said = cli("ls")
    assert said.code == 2
    assert said.err.startswith("safelight: SAFELIGHT_LEASE_S")


def test_the_stack_of_this_folder_is_found(
    cli: Cli, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SAFELIGHT_REDIS_URL")
    (tmp_path / ".local").mkdir()
    for name in ("AWS_ACCESS_KEY_ID", "SAFELIGHT_S3_BUCKET"):
        monkeypatch.setenv(name, "put back by the fixture")
    write_env_file(
        tmp_path / ".local/env", {"SAFELIGHT_REDIS_URL": client.settings.redis_url, "AWS_ACCESS_KEY_ID": "a b"}
    )
    job = client.submit(prompt="1")
    try:
        said = cli("ls", "--json")
        assert os.environ["AWS_ACCESS_KEY_ID"] == "a b"
    finally:
        os.environ.pop("SAFELIGHT_REDIS_URL", None)
    assert [each["id"] for each in said.lines] == [job.id]
    assert len(said.err.splitlines()) == 1
    assert ".local/env" in said.err


def test_ctrl_c_leaves_the_job_running(cli: Cli, client: Client, tmp_path: Path) -> None:
    job: Job = client.submit(prompt="a boat")
    process = subprocess.Popen(
        [sys.executable, "-m", "tasks.cli", "watch", job.id], stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert process.stderr is not None
    try:
        assert job.id in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        words = process.stderr.read()
        assert process.wait(20) == 130
    finally:
        process.kill()
    assert f"safelight watch {job.id}" in words
    assert "Traceback" not in words
    assert client.get(job.id).status is JobStatus.QUEUED


def test_a_reader_that_leaves_is_met_in_silence(cli: Cli, client: Client, tmp_path: Path) -> None:
    client.submit_many({"prompt": f"{number} " + "long " * 400} for number in range(60))
    process = subprocess.Popen(
        [sys.executable, "-m", "tasks.cli", "ls", "--json", "--limit", "1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(20) == 1


def test_an_outage_is_ridden_out(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.cli.follow import states
    from tasks.errors import StoreUnavailable

    job = client.submit(prompt="1")
    seen = states(client, [job.id])
    assert next(seen).status is JobStatus.QUEUED
    answers: list[Exception | None] = [StoreUnavailable("away"), StoreUnavailable("away"), None]
    real = client.get

    def flaky(job_id: str) -> Job:
        if answers and (error := answers.pop(0)) is not None:
            raise error
        return real(job_id)

    monkeypatch.setattr(client, "get", flaky)
    client.abort(job.id)
    assert [each.status for each in seen] == [JobStatus.ABORTED]


def test_an_outage_that_lasts_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.cli import follow
    from tasks.errors import StoreUnavailable

    job = client.submit(prompt="1")
    monkeypatch.setattr(follow, "_PATIENCE_S", 0.3)
    seen = follow.states(client, [job.id])
    next(seen)

    def away(job_id: str) -> Job:
        raise StoreUnavailable("away")

    monkeypatch.setattr(client, "get", away)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        next(seen)
    assert time.monotonic() - began < 10

"""The commands of our pages do what they say: each one of a snippet runs, as it stands, against real servers."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks import Client
from tasks.cli import main
from tasks.local.servers import S3Server
from tasks.webhook_queue import Refusal, WebhookQueue
from tests.e2e.nodes import environment
from tests.integration.openai_stand import Stand
from tests.snippets import ROOT, commands, snippets

Run = Callable[..., str]
#: What a page writes in place of an id.
AN_ID = "01JZ8Q..."


@pytest.fixture(autouse=True)
def reader(at: Stand, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment of a reader, in an empty folder."""
    for name, value in environment(at.settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def client(at: Stand) -> Iterator[Client]:
    with Client(at.settings) as client:
        yield client


def shell_of(page: str, begins: str) -> str:
    [text] = [one.text for one in snippets("sh", pages=[ROOT / page]) if one.text.startswith(begins)]
    return text


def dead_letter(client: Client) -> str:
    """A job that the worker double fails, and whose webhook was given up too."""
    job = client.submit(prompt="fail upload_failed by wish", webhook_url="https://example.org/hook")
    client.wait(job.id, timeout_s=30)
    queue = WebhookQueue(client._redis, client.settings.key_prefix)
    [delivery] = [each for each in queue.due(9) if each.job_id == job.id]
    queue.bury(delivery, Refusal(status=410, error="status 410"))
    return job.id


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """One command of a snippet, in this process: what it says on stdout. It must end with 0."""

    def call(words: list[str], given: bytes = b"") -> str:
        monkeypatch.setattr(sys, "argv", words)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        assert not left.value.code, (words, said.err)
        return said.out

    return call


@pytest.mark.parametrize("begins", ["safelight dead-letter", "safelight webhooks"])
def test_an_operator_s_commands(begins: str, client: Client, run: Run) -> None:
    calls = list(commands(shell_of("docs/operations.md", begins)))
    assert len(calls) >= 3
    for words in calls:
        job_id = dead_letter(client)
        said = run([job_id if word == AN_ID else word for word in words])
        assert job_id in said or "--older-than" in words, words


@pytest.mark.parametrize(("page", "pictures", "jobs"), [("docs/tutorial.md", 1, 2), ("docs/cli.md", 3, 5)])
def test_a_producer_s_commands(page: str, pictures: int, jobs: int, client: Client, run: Run, tmp_path: Path) -> None:
    (tmp_path / "requests.jsonl").write_text('"a boat"\n{"prompt": "a tree", "seed": 7}\n', "utf-8")
    piped = b""
    for words in commands(shell_of(page, "safelight submit")):
        if words[0] == "printf":
            piped = subprocess.run(words, capture_output=True, check=True).stdout
        else:
            run(words, piped)
    assert len(list((tmp_path / "pictures").iterdir())) == pictures
    assert len(client.store.list().jobs) == jobs

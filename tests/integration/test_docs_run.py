"""The Python of the README and of the tutorial runs as it stands, and so does the README's curl."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tasks.local.servers import S3Server
from tests.e2e.nodes import environment
from tests.integration.openai_stand import KEY, Stand
from tests.snippets import ROOT, snippets


@pytest.fixture(autouse=True)
def told(at: Stand, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a reader, who has no key."""
    for name, value in environment(at.settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)


def run(name: str, language: str, index: int = 0) -> str:
    return snippets(language, pages=[ROOT / name])[index].text


PYTHON = (
    ("README.md", 0, r"succeeded \['http"),
    ("README.md", 1, r"[0-9a-f-]{36}\n"),
    ("docs/tutorial.md", 0, r"queued\nsucceeded \['http"),
    ("docs/reference/python.md", 0, r"succeeded \['http"),
)


@pytest.mark.parametrize(("page", "index", "pattern"), PYTHON)
def test_python(page: str, index: int, pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(run(page, "python", index), page, "exec"), {"__name__": "__main__"})
    assert re.match(pattern, capsys.readouterr().out)


def test_no_python_of_our_pages_is_left_out() -> None:
    elsewhere = {"docs/migrating.md": 2, "engine/models/tiny/README.md": 1}  # test_migrating.py, test_tiny_model.py
    counted = Counter(str(snippet.page.relative_to(ROOT)) for snippet in snippets("python"))
    here = Counter(page for page, _, _ in PYTHON)
    assert counted == here + Counter(elsewhere)


def test_the_curl_of_the_readme(at: Stand, tmp_path: Path) -> None:
    (text,) = [snippet.text for snippet in snippets("sh", pages=[ROOT / "README.md"]) if "curl" in snippet.text]
    first, *others = re.sub(r" *\\\n *", " ", text).strip().splitlines()
    assert len(others) == 4

    def answer(command: str) -> str:
        command = command.replace("$SAFELIGHT_URL", at.url).replace(
            "curl ", f"curl -m 30 -H 'Authorization: Bearer {KEY}' "
        )
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, command
        return done.stdout

    head, _, body = answer(first).replace("\r", "").partition("\n\n")
    job = json.loads(body)
    assert " 202 " in head.splitlines()[0] and f"/v1/jobs/{job['id']}" in head
    events, wait, output, abort = (command.replace("JOB_ID", job["id"]) for command in others)
    assert "event: done" in answer(events)
    assert json.loads(answer(wait))["status"] == "succeeded"
    answer(output)
    assert (tmp_path / "0.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(answer(abort))["status"] == "succeeded", "it had ended, and stays as it was"

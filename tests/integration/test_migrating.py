"""The snippets of `docs/migrating.md` run as they stand, and its tables name what is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from api_stub.openai.schema import IGNORED, ImageFields
from tasks.request import GenerationRequest
from tests.e2e.nodes import environment
from tests.integration.openai_stand import KEY, Stand

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/migrating.md").read_text("utf-8")


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def run(at: Stand, *command: str) -> str:
    env = {**os.environ, **environment(at.settings), "SAFELIGHT_URL": at.url, "SAFELIGHT_API_KEY": KEY}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def credentials(at: Stand, monkeypatch: pytest.MonkeyPatch, s3_server: object) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)  # type: ignore[attr-defined]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)  # type: ignore[attr-defined]


def test_the_python_snippets(at: Stand) -> None:
    urls, succeeded = (run(at, sys.executable, "-c", code) for code in snippets("python"))
    assert urls.count("http") == 2
    assert succeeded.startswith("succeeded [7] ['http")


def test_the_shell_snippets(at: Stand) -> None:
    shell = "\n".join(snippets("sh")).replace("curl -s", f"curl -s -H 'Authorization: Bearer {KEY}'")
    answers = run(at, "sh", "-c", shell)
    assert answers.count('"status":"queued"') == shell.count("curl") == 3, answers


def test_the_routes_that_it_names_exist(at: Stand) -> None:
    paths = {re.sub(r"{\w+}", "{}", path) for path in httpx.get(f"{at.url}/openapi.json").json()["paths"]}
    theirs = {"/v1/predictions", "/v1/predictions/{}", "/v1/predictions/{}/cancel"}
    named = {re.sub(r"{\w+}", "{}", path) for path in re.findall(r"`[^`]*?(/v1/[a-z/{}_]+)", PAGE)}
    assert {path.rstrip("/") for path in named} - theirs - paths == {"/v1/images"}


def test_the_fields_that_it_names_exist() -> None:
    known = {*GenerationRequest.model_fields, *ImageFields.model_fields, "image", "mask", "usage", "revised_prompt"}
    table = PAGE[PAGE.index("| field of images |") : PAGE.index("A call waits")]
    named = {
        name
        for row in table.splitlines()[2:]
        for name in re.findall(r"`(\w+)`", row.split("|")[1] if "|" in row else "")
    }
    assert named - {"extra_body"} <= known
    assert {*ImageFields.model_fields, *IGNORED} <= named

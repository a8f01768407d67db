"""Imports point one way, as declared in pyproject.toml and as they really happen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "diffusers", "transformers", "numpy")
LIGHT = (
    "tasks",
    "tasks.client",
    "tasks.async_client",
    "tasks.app",
    "tasks.artifacts",
    "tasks.inputs",
    "tasks.local.stack",
    "tasks.cli",
    "tasks.cli.app",
    "tasks.cli.demo.run",
    "tasks.cli.doctor_view",
    "tasks.doctor.examine",
    "api_stub",
    "api_stub.app",
)


def loaded_by(statement: str) -> set[str]:
    """Top-level modules in a fresh interpreter after the statement."""
    code = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return set(done.stdout.split())


def test_the_contracts_are_kept() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_the_producer_side_loads_nothing_heavy() -> None:
    assert not loaded_by(f"import {', '.join(LIGHT)}") & {*HEAVY, "engine", "worker"}


@pytest.mark.parametrize("words", [["--help"], ["submit", "--help"], ["doctor", "--help"], ["--version"]])
def test_help_loads_no_client(words: list[str]) -> None:
    """Help and completion must be quick: no Redis, no boto3, no HTTP, no rich."""
    statement = f"""sys.argv[1:] = {words}; import contextlib, io, tasks.cli
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): tasks.cli.main()
"""
    code = f"import sys; {statement}print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert not set(done.stdout.split()) & {*HEAVY, "redis", "celery", "boto3", "httpx", "fastapi", "rich", "PIL"}


def test_the_engine_loads_no_queue_and_no_storage() -> None:
    loaded = loaded_by("import engine")
    assert not loaded & {"celery", "redis", "boto3", "fastapi", "tasks", "worker", "api_stub"}

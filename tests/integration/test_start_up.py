"""A worker that cannot start says in one line what, where and what to try, and leaves with the right code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.local.process import free_port
from tasks.settings import Settings
from tests.e2e.nodes import environment


def start(settings: Settings, *args: str, **changes: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment(settings), **changes}
    return subprocess.run(
        [sys.executable, "-m", "worker", *args], env=env, capture_output=True, text=True, timeout=60, check=False
    )


def assert_one_line(result: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    last = result.stderr.strip().splitlines()[-1]
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert all(word in last for word in words), last


def test_redis_out_of_reach(settings: Settings) -> None:
    port = free_port()
    result = start(settings, SAFELIGHT_REDIS_URL=f"redis://:secret@127.0.0.1:{port}/0")
    assert_one_line(result, 4, "Redis", f"127.0.0.1:{port}")
    assert "secret" not in result.stderr


def test_object_store_out_of_reach(settings: Settings) -> None:
    port = free_port()
    assert_one_line(start(settings, SAFELIGHT_S3_ENDPOINT_URL=f"http://127.0.0.1:{port}"), 4, f"127.0.0.1:{port}")


def test_wrong_credentials(settings: Settings) -> None:
    assert_one_line(start(settings, AWS_SECRET_ACCESS_KEY="wrong"), 4, "AWS_")


@pytest.mark.parametrize(
    ("name", "value"),
    [("SAFELIGHT_LEASE_S", "soon"), ("SAFELIGHT_REDIS_URL", "http://x"), ("SAFELIGHT_MAX_ATTEMPTS", "0")],
)
def test_a_wrong_setting_names_itself(settings: Settings, name: str, value: str) -> None:
    assert_one_line(start(settings, **{name: value}), 2, name)


def test_an_unknown_model(settings: Settings) -> None:
    assert_one_line(start(settings, "--model", "nope"), 2, "nope", "tiny")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ('source = "x"\nmax_batch_rows = 0', ("max_batch_rows",)),
        ('source = "bundled:tiny"\nmodality = "video"', ("video", "makes image")),
        ('source = "x"\nsurprise = 1', ("surprise",)),
        ('dtype = "float32"', ("source",)),
        ("this is not TOML", ("TOML",)),
    ],
)
def test_a_wrong_models_file_names_the_entry(
    settings: Settings, tmp_path: Path, entry: str, words: tuple[str, ...]
) -> None:
    models = tmp_path / "models.toml"
    models.write_text(f"[mine]\n{entry}\n", "utf-8")
    assert_one_line(start(settings, SAFELIGHT_MODELS=str(models)), 2, *words)


def test_a_model_that_does_not_load(settings: Settings, tmp_path: Path) -> None:
    models = tmp_path / "models.toml"
    models.write_text(f'[mine]\nsource = "{tmp_path}"\n', "utf-8")
    assert_one_line(start(settings, SAFELIGHT_MODELS=str(models)), 1, str(tmp_path))

"""`deploy/install.py`: a long installation says what it is at; pip's own words come only if it fails."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "install.py"
spec = importlib.util.spec_from_file_location("install", SCRIPT)
assert spec is not None and spec.loader is not None
install = importlib.util.module_from_spec(spec)
spec.loader.exec_module(install)

COLLECTING = ["Looking in links: /wheels", "Collecting torch>=2.5", "Collecting diffusers (from safelight==0.1.0)"]
METADATA = "  Downloading https://files.example/a/torch-2.13.0%2Bcpu-cp311-linux_x86_64.whl.metadata (30 kB)"
WHEEL = "Downloading https://files.example/a/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl (176.8 MB)"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "asking the package index"),
        ([*COLLECTING, METADATA], "choosing versions (so far 2)"),
        ([*COLLECTING, METADATA, WHEEL], "downloading torch 2.13.0+cpu (176.8 MB)"),
        (["  Using cached certifi-2026.1.4-py3-none-any.whl (152 kB)"], "taking certifi 2026.1.4 (152 kB)"),
        (["Processing /wheels/tqdm-4.67.1.tar.gz"], "taking tqdm 4.67.1"),
        ([WHEEL, "Installing collected packages: a, b, c"], "unpacking 3 packages"),
        ([WHEEL, "  Preparing metadata (pyproject.toml): started"], "downloading torch 2.13.0+cpu (176.8 MB)"),
    ],
)
def test_what_it_is_at(lines: list[str], words: str) -> None:
    assert install.doing(lines) == words


def test_last_words() -> None:
    assert install.verdict(["Successfully installed a-1 b-2.0"], 0, 61.4) == "installed 2 packages in 61 s"
    assert install.verdict(["Requirement already satisfied: a"], 0, 1) == "all of it was there already"
    said = install.verdict([f"line {n}" for n in range(100)], 1, 3.0).splitlines()
    assert said[0] == "line 60" and said[-1] == "pip failed after 3 s (exit code 1)"


def test_a_real_pip_that_fails_is_quoted_and_its_code_is_passed_on() -> None:
    command = [sys.executable, SCRIPT, "--no-index", "no-such-package-here"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "No matching distribution found for no-such-package-here" in done.stderr


def test_it_speaks_while_pip_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import time; print('Collecting torch'); time.sleep(0.5)"
    monkeypatch.setattr(install, "COMMAND", ("-c", code))
    monkeypatch.setattr(install, "LOG_S", 0.1)
    out = io.StringIO()
    assert install.main([], out) == 0
    *told, last = out.getvalue().splitlines()
    assert any("choosing versions (so far 1)" in line for line in told)
    assert last == "all of it was there already"

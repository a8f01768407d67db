"""Facts of torch and its devices, from a child process: this package never imports torch."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess  # nosec B404 # for our own module
import sys
from collections.abc import Mapping
from typing import Any, Self

LIMIT_S = 90.0
INSTALL = "pip install 'safelight[worker]'"


def has_torch() -> bool:
    """Whether this machine could be a worker."""
    return importlib.util.find_spec("torch") is not None


class WorkerProbe:
    """`python -m worker.probe`, beside the other checks: `start` early, ask for `facts` late. A context manager."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.limit_s = limit_s
        self._process: subprocess.Popen[str] | None = None
        self._facts: Mapping[str, Any] | str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def start(self) -> None:
        if self._process is None and has_torch():
            env = dict(os.environ, TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_TELEMETRY="1")
            self._process = subprocess.Popen(  # nosec B603 # our own module, and no shell
                [sys.executable, "-P", "-m", "worker.probe"],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

    def facts(self) -> Mapping[str, Any] | str:
        """What the child says; a sentence if it cannot say anything."""
        if self._facts is None:
            self._facts = self._collect()
        return self._facts

    def _collect(self) -> Mapping[str, Any] | str:
        self.start()
        if self._process is None:
            return f"torch is not installed here; a worker needs {INSTALL}"
        try:
            out, err = self._process.communicate(timeout=self.limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return f"python -m worker.probe did not end within {self.limit_s:.0f} s"
        with contextlib.suppress(ValueError, IndexError):
            facts: Mapping[str, Any] = json.loads(out.splitlines()[-1])
            return facts
        said = err.strip().splitlines() or [f"exit code {self._process.returncode}"]
        return f"python -m worker.probe failed: {said[-1]}"

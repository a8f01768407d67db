"""Workers as an operator starts them, on a fake model, so that a test can stop, kill and count them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tasks import Client
from tasks.job import Job
from tasks.local.process import ChildProcess
from tasks.settings import Settings
from tests.forks import ForkedProcess

LEASE_S = 3


def eventually(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Wait until it holds; fails the test with `what` if it never does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)


class Fleet:
    """A client and any number of workers on one Redis and one bucket."""

    def __init__(self, settings: Settings, home: Path, stack: contextlib.ExitStack) -> None:
        self.settings = settings
        self._home = home
        self._stack = stack
        self.client = stack.enter_context(Client(settings))
        self._num_workers = 0

    def start_worker(self, name: str | None = None, timeout_s: float = 60) -> ChildProcess:
        """Returns once it has announced itself."""
        self._num_workers += 1
        name = name or f"w{self._num_workers}"
        env = {**os.environ, **environment(self.settings), "SAFELIGHT_WORKER_NAME": name}
        worker = ForkedProcess(name, "worker", log=self._home / f"{name}.log", env=env)
        self._stack.callback(worker.stop, 20)
        worker.wait_ready(lambda: any(w["host"] == name for w in self.client.store.workers()), timeout_s=timeout_s)
        return worker

    def submit(self, prompt: str = "a boat", **fields: object) -> Job:
        return self.client.submit({"prompt": prompt, "height": 16, "width": 16, "num_inference_steps": 4, **fields})

    def wait_step(self, job: Job, step: int, timeout_s: float = 20) -> None:
        eventually(lambda: self.client.get(job.id).progress.step >= step, timeout_s, f"{job.id} at step {step}")

    def logs(self) -> str:
        return "\n".join(
            f"== {path.name}\n{path.read_text('utf-8', 'replace')[-4000:]}" for path in self._home.glob("*.log")
        )


def environment(settings: Settings) -> dict[str, str]:
    """The variables that give another process the same settings."""
    values = settings.model_dump(exclude_none=True, exclude={"worker_name", "webhook_secret", "api_keys"})
    return {f"SAFELIGHT_{name.upper()}": str(value) for name, value in values.items()}


@contextlib.contextmanager
def fleet(
    settings: Settings,
    home: Path,
    *,
    fake: str = "step_ms=5",
    mode: str = "auto",
    max_batch_rows: int = 4,
    admission_wait_ms: float = 20.0,
    entry: str = "",
    models_text: str | None = None,
    **changes: object,
) -> Iterator[Fleet]:
    """A fleet whose one model is `fake:{fake}`, or which has a models file of its own. `entry`: more lines
    of its table. Logs are printed on failure."""
    home.mkdir(exist_ok=True)
    models = home / "models.toml"
    models.write_text(
        models_text
        or f'[fake]\nsource = "fake:{fake}"\nmode = "{mode}"\nmax_batch_rows = {max_batch_rows}\n'
        f"admission_wait_ms = {admission_wait_ms}\n{entry}\n"
        "defaults = { height = 16, width = 16, num_inference_steps = 4 }\n"
        "limits = { min_size = 8, max_size = 64, max_steps = 1000 }\n",
        "utf-8",
    )
    changed = settings.model_copy(update={"models": models, "lease_s": LEASE_S, "drain_grace_s": 5.0, **changes})
    with contextlib.ExitStack() as stack:
        running = Fleet(changed, home, stack)
        try:
            yield running
        except BaseException:
            print(running.logs())
            raise

"""What the benches stand on: real servers, workers on a model of one's choice, and the bare pipeline beside them."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.report import spread
from tasks import Client, Job
from tasks.local.process import ChildProcess
from tasks.local.servers import RedisServer, S3Server, start_redis, start_s3
from tasks.settings import Settings

__all__ = ["BarePipeline", "Servers", "Stand", "costless", "running_stand", "servers", "spread", "timed"]

MODEL_DIR = Path(__file__).parent.parent / "engine" / "models" / "tiny"
PROMPT = "a red house with a blue roof under a yellow sun"
STEPS = 20
GUIDANCE = 4.0


@dataclass
class Servers:
    """Redis and S3 in a folder, and the variables under which programs find them."""

    home: Path
    redis: RedisServer
    s3: S3Server
    env: dict[str, str]
    stack: contextlib.ExitStack = field(repr=False)

    def use(self, **changes: str) -> None:
        """Change variables, for this process and for those that it starts from now on."""
        self.env |= changes
        os.environ.update(changes)

    def client(self, settings: Settings | None = None) -> Client:
        return self.stack.enter_context(Client(settings or Settings()))

    def start(self, name: str, command: list[str], changes: Mapping[str, str] | None = None) -> ChildProcess:
        """A child of this Python, stopped at the end."""
        env = {**os.environ, **self.env, **(changes or {})}
        process = ChildProcess(name, [sys.executable, *command], log=self.home / f"{name}.log", env=env)
        self.stack.callback(process.stop, 60)
        return process

    def start_worker(self, name: str, client: Client, changes: Mapping[str, str] | None = None) -> ChildProcess:
        """Returns once it is ready for jobs."""
        worker = self.start(name, ["-m", "worker"], {"SAFELIGHT_WORKER_NAME": name, **(changes or {})})
        worker.wait_ready(lambda: any(one["host"] == name for one in client.store.workers()), timeout_s=180)
        return worker


@contextlib.contextmanager
def servers(models: str) -> Iterator[Servers]:
    """Both servers in a temporary folder, with this models file; all gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="safelight-bench-") as folder, contextlib.ExitStack() as stack:
        home = Path(folder)
        redis_server = start_redis(home / "redis")
        stack.callback(redis_server.process.stop)
        s3_server = start_s3(home / "s3")
        stack.callback(s3_server.process.stop)
        (home / "models.toml").write_text(models, "utf-8")
        found = Servers(home, redis_server, s3_server, {}, stack)
        found.use(
            SAFELIGHT_REDIS_URL=redis_server.url,
            SAFELIGHT_S3_ENDPOINT_URL=s3_server.url,
            SAFELIGHT_MODELS=str(home / "models.toml"),
            SAFELIGHT_SPOOL_DIR=str(home / "spool"),
            SAFELIGHT_MAX_QUEUED="10000000",
            AWS_ACCESS_KEY_ID=s3_server.access_key,
            AWS_SECRET_ACCESS_KEY=s3_server.secret_key,
        )
        yield found


@dataclass
class Stand:
    """A running system. `submit` answers when every job has ended."""

    client: Client
    worker: ChildProcess

    def run(self, num_jobs: int, **fields: Any) -> list[Job]:
        request = {"prompt": PROMPT, "num_inference_steps": STEPS, "guidance_scale": GUIDANCE, **fields}
        jobs = self.client.submit_many([{**request, "seed": seed} for seed in range(num_jobs)])
        ended = [self.client.wait(job.id, timeout_s=1800) for job in jobs]
        assert all(job.status == "succeeded" for job in ended), [job.error for job in ended if job.error]
        return ended


@contextlib.contextmanager
def running_stand(max_batch_rows: int, mode: str = "auto", models: str | None = None) -> Iterator[Stand]:
    """Redis, S3 and one worker, by default with the bundled model."""
    with servers(models or bundled(max_batch_rows, mode)) as found:
        client = found.client()
        yield Stand(client, found.start_worker("worker", client))


def bundled(max_batch_rows: int, mode: str = "auto") -> str:
    """A models file with the bundled model."""
    return f"""
[tiny]
source = "bundled:tiny"
dtype = "float32"
device = "cpu"
mode = "{mode}"
max_batch_rows = {max_batch_rows}
defaults = {{ height = 96, width = 96, num_inference_steps = 20, guidance_scale = 4.0 }}
limits = {{ min_size = 64, max_size = 160, max_steps = 100 }}
"""


def costless(step_ms: float = 0.0, max_batch_rows: int = 8, mode: str = "request") -> str:
    """A models file with one model of arithmetic, whose step sleeps: what is left is what Safelight costs."""
    return f"""
[tiny]
source = "fake:step_ms={step_ms}"
mode = "{mode}"
max_batch_rows = {max_batch_rows}
admission_wait_ms = 2
defaults = {{ height = 16, width = 16, num_inference_steps = 20, guidance_scale = 4.0 }}
limits = {{ size_multiple = 8, min_size = 8, max_size = 64, max_steps = 1000 }}
"""


class BarePipeline:
    """Plain diffusers on the same weights: what somebody would write without a queue."""

    def __init__(self) -> None:
        import torch
        from diffusers import DiffusionPipeline

        self._torch = torch
        self._pipeline = DiffusionPipeline.from_pretrained(MODEL_DIR, torch_dtype=torch.float32, local_files_only=True)
        self._pipeline.set_progress_bar_config(disable=True)

    def run(self, num_images: int, batch_rows: int, num_inference_steps: int = STEPS) -> None:
        for first in range(0, num_images, batch_rows):
            seeds = range(first, min(first + batch_rows, num_images))
            self._pipeline(
                [PROMPT] * len(seeds),
                num_inference_steps=num_inference_steps,
                guidance_scale=GUIDANCE,
                generator=[self._torch.Generator().manual_seed(seed) for seed in seeds],
            )


def timed(call: Any, *args: Any, **kwargs: Any) -> float:
    """Wall-clock seconds of one call."""
    began = time.perf_counter()
    call(*args, **kwargs)
    return time.perf_counter() - began

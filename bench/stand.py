"""What the benches stand on: real servers, a worker of a given batch size, and the bare pipeline beside it."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks import Client, Job
from tasks.local.process import ChildProcess
from tasks.local.servers import start_redis, start_s3
from tasks.settings import Settings

MODEL_DIR = Path(__file__).parent.parent / "engine" / "models" / "tiny"
PROMPT = "a red house with a blue roof under a yellow sun"
STEPS = 20
GUIDANCE = 4.0


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
def running_stand(max_batch_rows: int, mode: str = "auto") -> Iterator[Stand]:
    """Redis, S3 and one worker in a temporary folder; all gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="safelight-bench-") as folder, contextlib.ExitStack() as stack:
        home = Path(folder)
        redis_server = start_redis(home / "redis")
        stack.callback(redis_server.process.stop)
        s3_server = start_s3(home / "s3")
        stack.callback(s3_server.process.stop)
        models = home / "models.toml"
        models.write_text(_models_file(max_batch_rows, mode), "utf-8")
        env = {
            "SAFELIGHT_REDIS_URL": redis_server.url,
            "SAFELIGHT_S3_ENDPOINT_URL": s3_server.url,
            "SAFELIGHT_MODELS": str(models),
            "AWS_ACCESS_KEY_ID": s3_server.access_key,
            "AWS_SECRET_ACCESS_KEY": s3_server.secret_key,
        }
        os.environ.update(env)
        worker = ChildProcess(
            "worker", [sys.executable, "-m", "worker"], log=home / "worker.log", env={**os.environ, **env}
        )
        stack.callback(worker.stop, 60)
        client = stack.enter_context(Client(Settings()))
        worker.wait_ready(lambda: bool(client.store.workers()), timeout_s=180)
        yield Stand(client, worker)


def _models_file(max_batch_rows: int, mode: str) -> str:
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


def spread(values: Sequence[float]) -> str:
    """Median and range, as the tables show them."""
    return f"{statistics.median(values):.3f} [{min(values):.3f} to {max(values):.3f}]"

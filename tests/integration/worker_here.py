"""A worker's way of a job, in this process: real stores, a fake model, no Celery between the hint and the attempt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine import DiffusionEngine, EngineConfig
from tasks.artifacts import ArtifactStore
from tasks.client import Client
from tasks.hints import Hinter
from tasks.inputs import InputLoader
from tasks.models import BUNDLED
from tasks.settings import Settings
from tasks.tracing import NO_TRACING, Tracing
from worker.announce import Announcer
from worker.attempt import Attempts
from worker.checkpoints import Checkpoints
from worker.figures import NodeFigures
from worker.gate import Gate
from worker.generate import Generate
from worker.model_shelf import ModelShelf
from worker.progress import ProgressWriter
from worker.uploads import Uploader


class WorkerHere:
    """`run` is what a delivery does; the job is the only one that waits."""

    def __init__(self, client: Client, engine: DiffusionEngine, tracing: Tracing, **parts: Any) -> None:
        self.client = client
        self.figures = NodeFigures()
        self.attempts = Attempts()
        self.artifacts = ArtifactStore(client.settings)
        self.artifacts.ensure_bucket()
        self.hinter = Hinter(client.settings)
        self.progress = ProgressWriter(client.store)
        self.broken: list[str] = []
        self.shelf = ModelShelf([BUNDLED], lambda spec: engine)
        self.shelf.fill()
        surroundings: dict[str, Any] = {
            "store": client.store,
            "engines": self.shelf,
            "shelf": self.shelf,
            "hinter": self.hinter,
            "inputs": InputLoader(client.settings, self.artifacts),
            "uploader": Uploader(self.artifacts, "", 5.0, figures=self.figures),
            "checkpoints": Checkpoints(self.artifacts, ""),
            "attempts": self.attempts,
            "progress": self.progress,
            "gate": Gate(),
            "draining": lambda: False,
            "on_broken": self.broken.append,
            "tracing": tracing,
            "figures": self.figures,
            **parts,
        }
        self.generate = Generate(worker="here", lease_s=30, max_attempts=3, stall_s=60, **surroundings)
        parts_told = (self.attempts, self.figures, lambda: False, lambda: None, self.shelf)
        self.announcer = Announcer("here:1", "here", ["tiny"], self.shelf, *parts_told)

    def run(self, job_id: str) -> str:
        word = self.generate.run("tiny", job_id)
        self.announcer.beat(self.client.store)
        return word


@contextmanager
def worker_here(
    settings: Settings, tracing: Tracing = NO_TRACING, fake: str = "fail_prompt=broken", **parts: Any
) -> Iterator[WorkerHere]:
    """A worker for the bundled model's name, which a fake stands in for."""
    config = EngineConfig(model=f"fake:{fake}", admission_wait_ms=1, warmup=False)
    with Client(settings) as client, DiffusionEngine.make_engine(config) as engine:
        worker = WorkerHere(client, engine, tracing, **parts)
        try:
            yield worker
        finally:
            worker.hinter.close()
            worker.shelf.close()

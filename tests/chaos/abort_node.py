"""A worker's inside for trials: the real store, engine and story of a job, with trip wires along the way.

Objects go into a dict; what an object store does to a job is the business of `tests.chaos`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, Literal

import redis

from engine import DiffusionEngine, DiffusionRequest, EngineConfig, OutputStream
from engine.adapter import RowOutcome
from engine.request import Row
from engine.testing import FakeAdapter, FakeSpec
from tasks.artifacts import DownloadFailed
from tasks.connection import connect
from tasks.redis_store import RedisJobStore
from tasks.settings import Settings
from tasks.store import Claimed, NotClaimed, Outcome, Written
from worker.aborts import AbortWatcher
from worker.attempt import Attempts
from worker.checkpoints import Checkpoints
from worker.gate import Gate
from worker.generate import Generate
from worker.periodic import Periodic
from worker.progress import ProgressWriter
from worker.uploads import Uploader

Wire = Literal["claimed", "batched", "denoising", "decoding", "uploading", "finished"]
MODELS = ("rows", "steps")
POLL_S, STEP_MS = 0.004, 3.0
#: What decoding takes, and storing an object: as long as the watcher needs to see an abort, so that both orders happen.
DECODE_S, PUT_S = 0.006, 0.008


class Wires:
    """Somebody waits until a certain job passes a certain point, and is told from the thread that passes it."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], Callable[[], object]] = {}
        #: Requests whose story is over, and the steps that the model did for them later.
        self.over: set[str] = set()
        self.late: Counter[tuple[str, int]] = Counter()

    def lay(self, wire: Wire, job_id: str, told: Callable[[], object]) -> None:
        self._waiting[wire, job_id] = told

    def passed(self, wire: Wire, job_id: str) -> None:
        told = self._waiting.pop((wire, job_id), None)
        if told is not None:
            told()


class WiredStore(RedisJobStore):
    wires: Wires

    def take(self, model: str, hint: str, worker: str, lease_s: float) -> Claimed | NotClaimed:
        """The job of the hint whatever is due, so that a trial knows whose story runs."""
        answer = super().claim(hint, worker, lease_s)
        self.wires.passed("claimed", hint)
        return answer

    def finish(self, job_id: str, attempt: int, outcome: Outcome) -> Written:
        self.wires.passed("finished", job_id)
        return super().finish(job_id, attempt, outcome)


class WiredEngine(DiffusionEngine):
    wires: Wires

    def submit(self, request: DiffusionRequest) -> OutputStream:
        stream = super().submit(request)
        self.wires.passed("batched", _job_of(request))
        return stream


class WiredAdapter(FakeAdapter):
    wires: Wires

    def _note_steps(self, steps: Sequence[tuple[Row, int]]) -> None:
        for row, step in steps:
            if self.mode == "step" and row.request.request_id in self.wires.over:  # a pipeline call keeps all its rows
                self.wires.late[row.request.request_id, row.index] += 1
            if step == 2:
                self.wires.passed("denoising", _job_of(row.request))

    def _decode(self, row: Row, latents: Any) -> RowOutcome:
        self.wires.passed("decoding", _job_of(row.request))
        time.sleep(DECODE_S)
        return super()._decode(row, latents)


class Bucket:
    """Objects in memory, with what `Uploader` and `Checkpoints` ask of an `ArtifactStore`."""

    bucket = "b"

    def __init__(self, wires: Wires) -> None:
        #: By job.
        self.objects: dict[str, dict[str, bytes]] = {}
        self._wires = wires

    def put(self, key: str, body: bytes, *_: Any) -> str:
        self._wires.passed("uploading", key.split("/")[-3])
        time.sleep(PUT_S)
        self.objects.setdefault(key.split("/")[-3], {})[key] = body
        return f"s3://{self.bucket}/{key}"

    def watched(self, _: object) -> AbstractContextManager[None]:
        return nullcontext()

    def get(self, uri: str, max_bytes: int) -> bytes:
        raise DownloadFailed(uri)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.get(key.split("/")[-3], {}).pop(key, None)


def _job_of(request: DiffusionRequest) -> str:
    return request.request_id.rpartition(".")[0]


class Node:
    """`generate.run` is what a delivery calls; `store` is also the producer's."""

    def __init__(self, settings: Settings, engines: Mapping[str, DiffusionEngine], wires: Wires) -> None:
        self.wires = wires
        self.client: redis.Redis = connect(settings)
        self.store = WiredStore(self.client)
        self.store.wires = wires
        self.bucket: Any = Bucket(wires)
        attempts = Attempts()
        self.watcher = Periodic("abort-watcher", AbortWatcher(self.store, attempts).tick, POLL_S)
        nobody: Any = SimpleNamespace(publish=lambda hints: True)
        self.generate = Generate(
            store=self.store,
            engines=engines,
            hinter=nobody,
            inputs=nobody,
            uploader=Uploader(self.bucket, "", patience_s=30),
            checkpoints=Checkpoints(self.bucket, ""),
            attempts=attempts,
            progress=ProgressWriter(self.store),
            gate=Gate(),
            worker="trial",
            lease_s=60,
            max_attempts=3,
            stall_s=120,
            draining=lambda: False,
            on_broken=lambda why: None,
        )

    def deliver(self, job_id: str) -> None:
        """As a message does; what the model does for it later is a leak."""
        self.generate.run("of its job", job_id)
        self.wires.over.add(f"{job_id}.1")


@contextmanager
def running_node(settings: Settings) -> Iterator[Node]:
    wires = Wires()
    engines: dict[str, DiffusionEngine] = {}
    try:
        for name, mode in zip(MODELS, ("request", "step"), strict=True):
            adapter = WiredAdapter(FakeSpec(step_ms=STEP_MS), mode=mode)  # type: ignore[arg-type]
            adapter.wires = wires
            config = EngineConfig(model="fake:", mode=mode, warmup=False, admission_wait_ms=2)  # type: ignore[arg-type]
            engine = WiredEngine.make_engine(config, adapter=adapter)
            engine.wires = wires
            engines[name] = engine
        node = Node(settings, engines, wires)
        node.watcher.start()
        yield node
        node.watcher.stop()
        node.client.close()
    finally:
        for engine in engines.values():
            engine.close()

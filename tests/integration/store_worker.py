"""A worker made of Pillow: claims queued jobs, reports, stores real objects, finishes. No model, no Celery."""

from __future__ import annotations

import base64
import hashlib
import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from PIL import Image

from tasks.artifacts import ArtifactStore, object_key
from tasks.client import Client
from tasks.errors import InvalidRequest
from tasks.inputs import InputLoader
from tasks.job import Job, JobError, JobMetrics, JobStatus, Output, Progress
from tasks.settings import Settings
from tasks.store import Claimed, Outcome

CONTENT_TYPES = {"png": "image/png", "jpeg": "image/jpeg", "webp": "image/webp", "mp4": "video/mp4"}


@dataclass
class StoreWorker:
    """`hold` keeps jobs whose prompt contains "slow" running until it is set, or they are aborted; "fail" fails."""

    client: Client
    settings: Settings
    hold: threading.Event = field(default_factory=threading.Event)
    #: What the jobs' inputs looked like to the worker, by job id and field.
    seen: dict[tuple[str, str], Image.Image] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        self._artifacts = ArtifactStore(self.settings)
        self._artifacts.ensure_bucket()
        self._inputs = InputLoader(self.settings, self._artifacts)
        while not self._stop.is_set():
            for job in self.client.store.list(status=JobStatus.QUEUED).jobs:
                claimed = self.client.store.claim(job.id, "test", 30)
                if isinstance(claimed, Claimed):
                    threading.Thread(target=self._attempt, args=(claimed.job, claimed.attempt)).start()
            self._stop.wait(0.01)

    def _attempt(self, job: Job, attempt: int) -> None:
        self.client.store.finish(job.id, attempt, self._outcome(job, attempt))

    def _outcome(self, job: Job, attempt: int) -> Outcome:
        request, hold = job.request, self.hold
        if request.prompt.startswith("fail "):
            error = JobError(type=request.prompt.split()[1], message="image: it went wrong", attempt=attempt)  # type: ignore[arg-type]
            return Outcome(JobStatus.FAILED, error=error)
        try:
            for name, uri in (("image", request.image), ("mask_image", request.mask_image)):
                if uri is not None:
                    self.seen[job.id, name] = self._inputs.load_image(uri, name).image
        except InvalidRequest as wrong:
            return Outcome(JobStatus.FAILED, error=JobError(type="invalid_image", message=str(wrong), attempt=attempt))
        num_steps = request.num_inference_steps or 1
        for step in range(1, num_steps + 1):
            self.client.store.report(
                {
                    (job.id, attempt): Progress(
                        stage="denoising", step=step, num_steps=num_steps, fraction=0.9 * step / num_steps
                    )
                }
            )
            if request.preview_every and step % request.preview_every == 0:
                self.client.store.preview(job.id, attempt, self._preview(step))
        while "slow" in request.prompt and not hold.is_set():
            if self.client.store.aborts_wanted([job.id]) or self._stop.is_set():
                return Outcome(JobStatus.ABORTED)
            time.sleep(0.01)
        outputs = [self._put(job, attempt, index) for index in range(request.num_outputs)]
        return Outcome(JobStatus.SUCCEEDED, outputs=outputs, metrics=JobMetrics(total_ms=5))

    def _preview(self, step: int) -> dict[str, object]:
        body = encoded("jpeg", 24, 24, step)
        uri = "data:image/jpeg;base64," + base64.b64encode(body).decode()
        return {"step": step, "width": 24, "height": 24, "image": uri}

    def _put(self, job: Job, attempt: int, index: int) -> Output:
        request = job.request
        assert request.output_format and request.width and request.height and request.seed is not None
        seed, kind = request.seed + index, request.output_format
        body = b"frames" if kind == "mp4" else encoded(kind, request.width, request.height, seed)
        digest = hashlib.sha256(body).hexdigest()
        key = object_key("", "", job.id, attempt, index, kind)
        uri = self._artifacts.put(key, body, CONTENT_TYPES[kind], digest)
        size = {"width": request.width, "height": request.height, "num_frames": request.num_frames}
        return Output(uri=uri, content_type=CONTENT_TYPES[kind], seed=seed, size_bytes=len(body), sha256=digest, **size)


def encoded(kind: str, width: int, height: int, colour: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), (colour % 256, 40, 60)).save(stream, kind)
    return stream.getvalue()


@contextmanager
def store_worker(settings: Settings) -> Iterator[StoreWorker]:
    with Client(settings) as client:
        worker = StoreWorker(client, settings)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            yield worker
        finally:
            worker._stop.set()
            thread.join()

"""Half-done jobs on their way to another node: their latents wait in the bucket while the job waits in the queue.

One object a job: an attempt that gives it back replaces what an earlier one left, and any later attempt goes on from
there, also after a crash. Whatever goes wrong on the way, the job begins anew: a checkpoint saves time and decides
nothing, so nobody waits long for one either.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TypeVar

from engine import Checkpoint, NotACheckpoint
from tasks.artifacts import ArtifactStore, DownloadFailed, UploadFailed
from tasks.errors import StoreUnavailable
from worker.attempt import Attempt

log = logging.getLogger(__name__)

#: Of one job; a larger one is not worth its way.
MAX_BYTES = 256 * 1024 * 1024
CONTENT_TYPE = "application/octet-stream"
#: How long a drain waits for its upload, and a start for its download; between looks at whether it should go on.
KEEP_S, FIND_S, _GLANCE_S = 3.0, 10.0, 0.1
_DIGEST_BYTES = 32

T = TypeVar("T")


class Checkpoints:
    """Checkpoints by job in the bucket. Their bytes begin with their own SHA-256."""

    def __init__(self, artifacts: ArtifactStore, prefix: str) -> None:
        self._artifacts = artifacts
        self._prefix = prefix

    def keep(self, attempt: Attempt, checkpoint: Checkpoint) -> bool:
        """For the attempts that follow this one. Returns whether it is stored, after some seconds at the most."""
        try:
            body = checkpoint.to_bytes()
            if len(body) > MAX_BYTES:
                log.info("job %s: no checkpoint, %d bytes are above %d", attempt.job.id, len(body), MAX_BYTES)
                return False
            body = hashlib.sha256(body).digest() + body
            digest = hashlib.sha256(body).hexdigest()
            _within(KEEP_S, lambda: self._artifacts.put(self._key(attempt), body, CONTENT_TYPE, digest))
        except (TypeError, UploadFailed, StoreUnavailable, TimeoutError) as error:
            log.warning("job %s: no checkpoint: %s", attempt.job.id, error)
            return False
        log.info("job %s: its %d steps are kept for the next attempt", attempt.job.id, checkpoint.step)
        return True

    def find(self, attempt: Attempt) -> Checkpoint | None:
        """What earlier attempts left behind. Raises `Stopped` and `Late` while it waits."""

        def look() -> None:
            attempt.check()
            attempt.check_deadline()

        if attempt.number < 2:
            return None
        uri = f"s3://{self._artifacts.bucket}/{self._key(attempt)}"
        try:
            return _opened(_within(FIND_S, lambda: self._artifacts.get(uri, MAX_BYTES + _DIGEST_BYTES), look))
        except DownloadFailed:
            return None
        except (NotACheckpoint, StoreUnavailable, TimeoutError) as error:
            log.warning("job %s begins anew: %s", attempt.job.id, error)
            return None

    def forget(self, attempt: Attempt) -> None:
        """After the outcome; litter is tolerable, so a failure is only logged."""
        if attempt.number < 2:
            return
        try:
            _within(KEEP_S, lambda: self._artifacts.delete([self._key(attempt)]))
        except Exception as error:
            log.warning("job %s: its checkpoint is left behind: %s", attempt.job.id, error)

    def delete(self, job_ids: Sequence[str]) -> None:
        """Of jobs that have ended; a missing one is no error. Raises `StoreUnavailable`."""
        self._artifacts.delete([self._key_of(job_id) for job_id in job_ids])

    def _key(self, attempt: Attempt) -> str:
        return self._key_of(attempt.job.id)

    def _key_of(self, job_id: str) -> str:
        return "/".join(filter(None, (self._prefix.strip("/"), "checkpoints", f"{job_id}.safetensors")))


def _opened(data: bytes) -> Checkpoint:
    """Raises NotACheckpoint for bytes that are not what was stored."""
    digest, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise NotACheckpoint("the checkpoint is damaged")
    return Checkpoint.from_bytes(body)


def _within(seconds: float, call: Callable[[], T], look: Callable[[], object] = lambda: None) -> T:
    """The call's result, or its error, or TimeoutError; an object store that hangs may keep it for a minute.

    `look` is called meanwhile and may raise. The call then goes on by itself, for nobody.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="checkpoint", daemon=True).start()
    ends = time.monotonic() + seconds
    while True:
        try:
            return future.result(_GLANCE_S)
        except FutureTimeout:
            if future.done():
                raise
            if time.monotonic() > ends:
                raise TimeoutError(f"the object store gave no answer in {seconds:g} s") from None
            look()

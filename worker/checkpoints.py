"""Half-done jobs on their way to another node: their latents wait in the bucket while the job waits in the queue.

The attempt that gives a job back stores its checkpoint under its own number; the next attempt looks under that number.
Whatever goes wrong on the way, the job begins anew: a checkpoint saves time and decides nothing.
"""

from __future__ import annotations

import hashlib
import logging

from engine import Checkpoint, NotACheckpoint
from tasks.artifacts import ArtifactStore, DownloadFailed, UploadFailed, object_key
from tasks.errors import StoreUnavailable
from worker.attempt import Attempt

log = logging.getLogger(__name__)

#: Of one job; a larger one is not worth its way.
MAX_BYTES = 256 * 1024 * 1024
CONTENT_TYPE = "application/octet-stream"


class Checkpoints:
    """Checkpoints by job and attempt in the bucket."""

    def __init__(self, artifacts: ArtifactStore, prefix: str) -> None:
        self._artifacts = artifacts
        self._prefix = prefix

    def keep(self, attempt: Attempt, checkpoint: Checkpoint) -> bool:
        """For the attempt that follows this one. Returns whether it is stored."""
        try:
            body = checkpoint.to_bytes()
            if len(body) > MAX_BYTES:
                log.info("job %s: no checkpoint, %d bytes are above %d", attempt.job.id, len(body), MAX_BYTES)
                return False
            key = self._key(attempt.job.id, attempt.number)
            self._artifacts.put(key, body, CONTENT_TYPE, hashlib.sha256(body).hexdigest())
        except (TypeError, UploadFailed, StoreUnavailable) as error:
            log.warning("job %s: no checkpoint: %s", attempt.job.id, error)
            return False
        log.info("job %s: its %d steps are kept for the next attempt", attempt.job.id, checkpoint.step)
        return True

    def find(self, attempt: Attempt) -> Checkpoint | None:
        """What the attempt before this one left behind."""
        if attempt.number < 2:
            return None
        key = self._key(attempt.job.id, attempt.number - 1)
        try:
            return Checkpoint.from_bytes(self._artifacts.get(f"s3://{self._artifacts.bucket}/{key}", MAX_BYTES))
        except DownloadFailed:
            return None
        except (NotACheckpoint, StoreUnavailable) as error:
            log.warning("job %s begins anew: %s", attempt.job.id, error)
            return None

    def forget(self, attempt: Attempt) -> None:
        """After the outcome; litter is tolerable, so a failure is only logged."""
        if attempt.resumed:
            try:
                self._artifacts.delete([self._key(attempt.job.id, attempt.number - 1)])
            except Exception as error:
                log.warning("job %s: its checkpoint is left behind: %s", attempt.job.id, error)

    def _key(self, job_id: str, number: int) -> str:
        return object_key(self._prefix, "checkpoints", job_id, number, 0, "safetensors")

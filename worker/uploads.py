"""Finished media become stored objects: encoded once, put with patience, verified. Off the device's thread."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from dataclasses import dataclass

from engine import Media
from engine.media import content_type, encode
from tasks.artifacts import ArtifactStore, UploadFailed, object_key, parse_uri
from tasks.job import Output
from worker.attempt import Attempt
from worker.figures import NodeFigures

log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 10.0


@dataclass(frozen=True, slots=True)
class Encoded:
    media: Media
    body: bytes
    sha256: str


class Uploader:
    """At most `num_parallel` jobs encode and upload at a time, so that they do not crowd out the device's thread."""

    def __init__(
        self,
        artifacts: ArtifactStore,
        prefix: str,
        patience_s: float,
        num_parallel: int = 4,
        figures: NodeFigures | None = None,
    ) -> None:
        self._figures = figures or NodeFigures()
        self._artifacts = artifacts
        self._prefix = prefix
        self._patience_s = patience_s
        self._slots = threading.BoundedSemaphore(num_parallel)

    def store(self, attempt: Attempt, media: tuple[Media, ...]) -> tuple[Output, ...]:
        """Raises `UploadFailed` if the store refuses or patience ends, `Late` if the deadline passes in an outage,
        `Stopped` at an abort or a lost lease."""
        output_format = attempt.job.request.output_format
        assert output_format is not None
        with self._slots, attempt.tracing.span("encode", {"safelight.num_outputs": len(media)}):
            encoded = [self._encode(attempt, item, output_format) for item in media]
        give_up_at = time.monotonic() + self._patience_s
        stored: list[Output] = []
        try:
            for k, item in enumerate(encoded):
                about = {"safelight.output": k, "safelight.size_bytes": len(item.body)}
                with attempt.tracing.span("upload", about, kind="client"):
                    stored.append(self._put(attempt, k, item, output_format, give_up_at))
        except Exception:
            self.discard(tuple(stored))
            raise
        return tuple(stored)

    def _encode(self, attempt: Attempt, media: Media, output_format: str) -> Encoded:
        body = encode(media, output_format, parameters(attempt, media.seed))
        return Encoded(media, body, hashlib.sha256(body).hexdigest())

    def _put(self, attempt: Attempt, k: int, item: Encoded, output_format: str, give_up_at: float) -> Output:
        mime = content_type(output_format)
        key = object_key(
            self._prefix, attempt.job.request.output_prefix, attempt.job.id, attempt.number, k, output_format
        )
        pause_s = _FIRST_PAUSE_S
        while True:
            attempt.check()
            try:
                with self._slots:
                    began = time.monotonic()
                    uri = self._artifacts.put(key, item.body, mime, item.sha256, {"seed": str(item.media.seed)})
                self._figures.uploaded(time.monotonic() - began)
                break
            except UploadFailed as error:
                if not error.retryable or time.monotonic() + pause_s > give_up_at:
                    self._figures.upload_failed("given_up")
                    raise
                self._figures.upload_failed("retried")
                log.warning("job %s: upload failed, again in %.1f s: %s", attempt.job.id, pause_s, error)
                attempt.check_deadline()
            attempt.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        media = item.media
        width, height = media.size or (None, None)
        return Output(
            uri=uri,
            content_type=mime,
            width=width,
            height=height,
            num_frames=media.num_frames,
            duration_s=None if media.duration_s is None else round(media.duration_s, 3),
            seed=media.seed,
            size_bytes=len(item.body),
            sha256=item.sha256,
        )

    def discard(self, outputs: tuple[Output, ...]) -> None:
        """Remove objects that no record will ever name; litter is tolerable, so failures are only logged."""
        if not outputs:
            return
        try:
            self._artifacts.delete([parse_uri(output.uri)[1] for output in outputs])
        except Exception as error:
            log.warning("could not delete %d unneeded objects: %s", len(outputs), error)


def parameters(attempt: Attempt, seed: int) -> dict[str, object]:
    """What an output carries of its own making."""
    request = attempt.job.request
    fields = request.model_dump(
        include={
            "model", "prompt", "negative_prompt", "height", "width", "num_inference_steps", "guidance_scale",
            "noise_scheduler", "strength", "loras", "num_frames", "fps", "duration_s",
        },
        exclude_none=True,
        mode="json",
    )  # fmt: skip
    return {**fields, "seed": seed, "job": attempt.job.id}

"""Finished media become stored objects: encoded once, spooled, put with patience, verified. Off the device's thread."""

from __future__ import annotations

import hashlib
import logging
import threading
import time

from engine import Media
from engine.media import content_type, encode
from tasks.artifacts import ArtifactStore, UploadFailed, object_key, parse_uri
from tasks.job import Output
from worker.attempt import Attempt
from worker.backlog import Backlog
from worker.figures import NodeFigures
from worker.outage import FIRST_PAUSE_S, LONGEST_PAUSE_S, Outage
from worker.parcel import Item, Manifest, Parcel
from worker.spool import Spool

log = logging.getLogger(__name__)

#: Jobs that put at a time. They mostly wait for a store that may be far away.
MAX_PUTS = 16
#: How often one that waits for others to have put looks whether the store went away meanwhile.
_GLANCE_S = 1.0


class Uploader:
    """At most `num_parallel` jobs encode at a time, so that they do not crowd out the device's thread."""

    def __init__(
        self,
        artifacts: ArtifactStore,
        prefix: str,
        patience_s: float,
        num_parallel: int = 4,
        figures: NodeFigures | None = None,
        spool: Spool | None = None,
        max_waiting: int = 0,
    ) -> None:
        self._figures = figures or NodeFigures()
        self._artifacts = artifacts
        self._prefix = prefix
        self._patience_s = patience_s
        self._slots = threading.BoundedSemaphore(num_parallel)
        self._puts = threading.BoundedSemaphore(MAX_PUTS)
        self._spool = spool
        self._outage = Outage()
        self.backlog = Backlog(spool, self._outage, max_waiting)
        self._figures.backlog = self.backlog.figures

    def find(self, attempt: Attempt) -> Parcel | None:
        """What an earlier attempt of the job rendered in vain, on this node."""
        is_first = attempt.number == 1 and attempt.job.retry_of is None
        parcel = None if self._spool is None or is_first else self._spool.find(attempt.job)
        if parcel is not None:
            manifest = parcel.manifest
            log.info("job %s: its outputs of attempt %d are here", attempt.job.id, manifest.attempt)
            attempt.parcel, attempt.started = parcel, True
            times = attempt.times
            times.load_ms, times.engine, times.mode = manifest.load_ms, manifest.engine, manifest.mode
        return parcel

    def pack(self, attempt: Attempt, media: tuple[Media, ...], warnings: tuple[str, ...] = ()) -> Parcel:
        output_format = attempt.job.request.output_format
        assert output_format is not None
        with self._slots, attempt.tracing.span("encode", {"safelight.num_outputs": len(media)}):
            bodies = [encode(each, output_format, parameters(attempt, each.seed)) for each in media]
            items = tuple(_item(each, body, output_format) for each, body in zip(media, bodies, strict=True))
            times = attempt.times
            manifest = Manifest(
                job_id=attempt.job.id,
                created_at=attempt.job.created_at,
                attempt=attempt.number,
                items=items,
                warnings=warnings,
                load_ms=times.load_ms,
                mode=times.mode,
                engine=times.engine,
            )
            path = None if self._spool is None else self._spool.keep(manifest, bodies, attempt.job)
        attempt.parcel = Parcel(manifest, bodies, path)
        return attempt.parcel

    def store(self, attempt: Attempt, parcel: Parcel) -> tuple[Output, ...]:
        """Raises `UploadFailed` if the store refuses or patience ends, `Late` if the deadline passes in an outage,
        `Stopped` at an abort or a lost lease, `Damaged` for a parcel that must be rendered again."""
        attempt.bind(self._outage.wake)
        give_up_at = time.monotonic() + self._patience_s
        stored: list[Output] = []
        try:
            for k, item in enumerate(parcel.manifest.items):
                about = {"safelight.output": k, "safelight.size_bytes": item.size_bytes}
                with attempt.tracing.span("upload", about, kind="client"):
                    stored.append(item.at(self._put(attempt, parcel, k, give_up_at)))
                attempt.check_deadline()  # a put may have taken longer than the job may live
        except Exception:
            self.discard(tuple(stored))
            raise
        finally:
            self.backlog.leave(attempt)
        return tuple(stored)

    def _put(self, attempt: Attempt, parcel: Parcel, k: int, give_up_at: float) -> str:
        """The object's URI, after as many tries as it takes."""
        pause_s = FIRST_PAUSE_S

        def look() -> None:
            attempt.check()
            attempt.check_deadline()
            self.backlog.join(attempt, parcel)

        while True:
            attempt.check()
            self._outage.wait_turn(look, give_up_at)
            try:
                if self._has_room(give_up_at):
                    return self._try(attempt, parcel, k)
                self._outage.pass_on()
            except UploadFailed as error:
                if not error.retryable or time.monotonic() + pause_s > give_up_at:
                    self._figures.upload_failed("given_up")
                    raise
                self._figures.upload_failed("retried")
                log.warning("job %s: upload failed, again in %.1f s: %s", attempt.job.id, pause_s, error)
            look()
            attempt.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _has_room(self, give_up_at: float) -> bool:
        """Waits for its place among the puts; False, and it has none, if the store is away: they may take long then."""
        while not self._puts.acquire(timeout=_GLANCE_S):
            if self._outage.is_away:
                return False
        if self._outage.may_try(give_up_at):
            return True
        self._puts.release()
        return False

    def _try(self, attempt: Attempt, parcel: Parcel, k: int) -> str:
        job, item = attempt.job, parcel.manifest.items[k]
        output_format = job.request.output_format
        assert output_format is not None
        key = object_key(self._prefix, job.request.output_prefix, job.id, attempt.number, k, output_format)
        try:
            with self._artifacts.watched(self._outage.failed):
                body = parcel.body(k)
                began = time.monotonic()
                uri = self._artifacts.put(key, body, item.content_type, item.sha256, {"seed": str(item.seed)})
        except UploadFailed as error:
            self._outage.failed() if error.retryable else self._outage.over()
            raise
        except BaseException:
            self._outage.pass_on()
            raise
        finally:
            self._puts.release()
        self._figures.uploaded(time.monotonic() - began)
        self._outage.over()
        return uri

    def unpack(self, attempt: Attempt, *, for_a_retry: bool) -> None:
        """The job has ended: its parcel goes, or stays for a retry of the job."""
        parcel = attempt.parcel
        if self._spool is None or parcel is None or parcel.path is None:
            return
        if for_a_retry:
            self._spool.retire(parcel.path)
        else:
            self._spool.remove(parcel.path)

    def discard(self, outputs: tuple[Output, ...]) -> None:
        """Remove objects that no record will ever name; litter is tolerable, so failures are only logged."""
        if not outputs:
            return
        try:
            self._artifacts.delete([parse_uri(output.uri)[1] for output in outputs])
        except Exception as error:
            log.warning("could not delete %d unneeded objects: %s", len(outputs), error)


def _item(media: Media, body: bytes, output_format: str) -> Item:
    width, height = media.size or (None, None)
    return Item(
        content_type=content_type(output_format),
        width=width,
        height=height,
        num_frames=media.num_frames,
        duration_s=None if media.duration_s is None else round(media.duration_s, 3),
        seed=media.seed,
        size_bytes=len(body),
        sha256=hashlib.sha256(body).hexdigest(),
    )


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

"""What a job's outputs say of the files that were stored."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from engine import Media
from tasks.job import Job, JobStatus
from tasks.request import GenerationRequest
from worker.attempt import Attempt, Late, Stop
from worker.uploads import Uploader

VIDEO = Media(kind="video", pixels=np.zeros((9, 16, 24, 3), np.uint8), fps=16.0, seed=7)
SOUND = Media(kind="audio", samples=np.zeros((4_000, 2), np.float32), sample_rate=8_000, seed=7)
IMAGE = Media(pixels=np.zeros((16, 24, 3), np.uint8), seed=7)


class Artifacts:
    """Keeps what is put."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.while_putting: Callable[[], object] = lambda: None
        self.threads: set[str] = set()

    def put(self, key: str, body: bytes, content_type: str, sha256: str, metadata: dict[str, str]) -> str:
        assert hashlib.sha256(body).hexdigest() == sha256
        self.while_putting()
        self.objects[key] = (body, content_type)
        self.threads.add(threading.current_thread().name)
        return f"s3://bucket/{key}"

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            del self.objects[key]

    def watched(self, _: object) -> AbstractContextManager[None]:
        return nullcontext()


def attempt(output_format: str, **fields: Any) -> Attempt:
    now = datetime.now(UTC)
    request = GenerationRequest(prompt="a boat", model="m", output_format=output_format, **fields)
    return Attempt(
        Job(id="j", status=JobStatus.RUNNING, request=request, created_at=now, started_at=now), 1, solo=False
    )


@pytest.mark.parametrize(
    ("media", "output_format", "content_type", "facts", "magic"),
    [
        (IMAGE, "png", "image/png", (24, 16, None, None), b"\x89PNG"),
        (VIDEO, "mp4", "video/mp4", (24, 16, 9, 0.562), b"ftyp"),
        (VIDEO, "webp", "image/webp", (24, 16, 9, 0.562), b"WEBP"),
        (VIDEO, "gif", "image/gif", (24, 16, 9, 0.562), b"GIF89a"),
        (SOUND, "wav", "audio/wav", (None, None, None, 0.5), b"WAVE"),
        (SOUND, "flac", "audio/flac", (None, None, None, 0.5), b"fLaC"),
    ],
)
def test_outputs_say_what_was_stored(
    media: Media, output_format: str, content_type: str, facts: tuple[Any, ...], magic: bytes
) -> None:
    artifacts = Artifacts()
    uploader = Uploader(artifacts, "p", patience_s=1.0)  # type: ignore[arg-type]
    claimed = attempt(output_format)
    (output,) = uploader.store(claimed, uploader.pack(claimed, (media,)))
    body, stored_type = artifacts.objects[f"p/j/1/0.{output_format}"]
    assert output.content_type == stored_type == content_type
    assert (output.width, output.height, output.num_frames, output.duration_s) == facts
    assert (output.seed, output.size_bytes) == (7, len(body))
    assert magic in body[:16]
    assert artifacts.threads == {threading.current_thread().name}


def test_a_put_that_outlives_the_deadline_is_no_success_and_leaves_nothing() -> None:
    artifacts = Artifacts()
    uploader = Uploader(artifacts, "p", patience_s=1.0)  # type: ignore[arg-type]
    claimed = attempt("png", deadline_s=1.0)
    parcel = uploader.pack(claimed, (IMAGE,))

    def stand_still() -> None:
        claimed.claimed_at -= 2.0

    artifacts.while_putting = stand_still
    with pytest.raises(Late):
        uploader.store(claimed, parcel)
    assert artifacts.objects == {}


def test_a_drain_during_the_last_put_keeps_what_is_stored() -> None:
    artifacts = Artifacts()
    uploader = Uploader(artifacts, "p", patience_s=1.0)  # type: ignore[arg-type]
    claimed = attempt("png")
    parcel = uploader.pack(claimed, (IMAGE,))
    artifacts.while_putting = lambda: claimed.stop(Stop.DRAIN)
    assert len(uploader.store(claimed, parcel)) == len(artifacts.objects) == 1

"""Checkpoints in the bucket save time and decide nothing: nobody waits long for one, and none is taken on trust."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Checkpoint
from engine.checkpoint import RowState
from tasks.artifacts import DownloadFailed
from tests.unit.test_worker_generate import a_job
from worker.attempt import Attempt, Stop, Stopped
from worker.checkpoints import Checkpoints

CHECKPOINT = Checkpoint("f", (RowState(0, 7, {"x": 1}),))


class Bucket:
    """Objects in memory; hangs while told to, as a store behind a black hole does."""

    bucket = "b"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.answers = threading.Event()
        self.answers.set()

    def put(self, key: str, body: bytes, *_: Any) -> None:
        self.answers.wait(30)
        self.objects[key] = body

    def get(self, uri: str, max_bytes: int) -> bytes:
        self.answers.wait(30)
        if (body := self.objects.get(uri.removeprefix("s3://b/"))) is None:
            raise DownloadFailed("not there")
        return body

    def delete(self, keys: list[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    made = Bucket()
    yield made
    made.answers.set()


def attempt(number: int) -> Attempt:
    return Attempt(a_job(), number, solo=False)


def checkpoints(bucket: Bucket) -> Checkpoints:
    return Checkpoints(bucket, "pre")  # type: ignore[arg-type]


def test_any_later_attempt_finds_it_until_the_job_ends(bucket: Bucket) -> None:
    kept = checkpoints(bucket)
    assert kept.find(attempt(1)) is None
    assert kept.keep(attempt(1), CHECKPOINT)
    assert kept.find(attempt(2)) == kept.find(attempt(5)) == CHECKPOINT
    assert len(bucket.objects) == 1
    kept.keep(attempt(2), CHECKPOINT)
    assert len(bucket.objects) == 1
    kept.forget(attempt(3))
    assert bucket.objects == {}


def test_a_changed_bit_is_noticed(bucket: Bucket) -> None:
    kept = checkpoints(bucket)
    kept.keep(attempt(1), CHECKPOINT)
    ((key, body),) = bucket.objects.items()
    for position in range(0, len(body), 7):
        broken = bytearray(body)
        broken[position] ^= 1
        bucket.objects[key] = bytes(broken)
        assert kept.find(attempt(2)) is None
    other = b"something else"
    bucket.objects[key] = hashlib.sha256(other).digest() + other
    assert kept.find(attempt(2)) is None


def test_a_drain_does_not_wait_for_a_store_that_hangs(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.checkpoints.KEEP_S", 0.2)
    bucket.answers.clear()
    began = time.monotonic()
    assert not checkpoints(bucket).keep(attempt(1), CHECKPOINT)
    assert time.monotonic() - began < 20, "the store itself would have kept it for 30 s"


def test_an_abort_is_heard_while_the_store_hangs(bucket: Bucket) -> None:
    bucket.answers.clear()
    waiting = attempt(2)
    threading.Timer(0.3, waiting.stop, (Stop.ABORT,)).start()
    with pytest.raises(Stopped):
        checkpoints(bucket).find(waiting)


def test_without_an_answer_the_job_begins_anew(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.checkpoints.FIND_S", 0.2)
    bucket.answers.clear()
    assert checkpoints(bucket).find(attempt(2)) is None

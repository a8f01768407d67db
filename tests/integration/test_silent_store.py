"""An object store that is stopped while its connections live: a worker says so long before a put may fail."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from engine import Media
from tasks.artifacts import ArtifactStore
from tasks.errors import StoreUnavailable
from tasks.job import Job, JobStatus
from tasks.local.servers import S3Server
from tasks.request import GenerationRequest
from tasks.s3_client import Patience
from tasks.settings import Settings
from tests.e2e.nodes import eventually
from worker import uploads
from worker.attempt import Attempt
from worker.spool import Spool, system_of
from worker.uploads import Uploader

IMAGE = Media(pixels=np.zeros((16, 24, 3), np.uint8), seed=7)
#: A put goes on for as long as the test does.
STUBBORN = Patience(read_s=0.2, num_attempts=30)


@contextmanager
def stopped(server: S3Server) -> Iterator[None]:
    server.process.send(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send(signal.SIGCONT)


def attempt(job_id: str) -> Attempt:
    now = datetime.now(UTC)
    request = GenerationRequest(prompt="a boat", model="m", output_format="png")
    return Attempt(
        Job(id=job_id, status=JobStatus.RUNNING, request=request, created_at=now, started_at=now), 1, solo=False
    )


def test_it_counts_as_away_while_puts_go_on(
    settings: Settings, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MAX_PUTS", 1)
    artifacts = ArtifactStore(settings, STUBBORN)
    artifacts.ensure_bucket()
    spool = Spool(tmp_path / "spool", 1_000_000, system_of(settings))
    uploader = Uploader(artifacts, "", 60.0, spool=spool, max_waiting=10)
    attempts = [attempt(name) for name in ("a", "b", "c")]
    parcels = [uploader.pack(each, (IMAGE,)) for each in attempts]
    with ThreadPoolExecutor(len(attempts)) as threads:
        with stopped(s3_server):
            puts = [threads.submit(uploader.store, *pair) for pair in zip(attempts, parcels, strict=True)]
            eventually(lambda: float(str(uploader.backlog.figures()["away_s"])) > 0, 20, "it counts as away")
            eventually(
                lambda: sum(each.is_set_aside for each in attempts) == 2, 20, "those who wait give up their places"
            )
            assert not any(put.done() for put in puts)
        assert [output.content_type for put in puts for output in put.result(30)] == ["image/png"] * len(attempts)
    assert uploader.backlog.figures()["away_s"] == 0


def test_only_a_put_tells(settings: Settings, s3_server: S3Server) -> None:
    """Who fails to read makes no outage: nobody would try whether it is over."""
    artifacts, told = ArtifactStore(settings, Patience(read_s=0.2, num_attempts=1)), []
    artifacts.ensure_bucket()
    with stopped(s3_server):
        with pytest.raises(StoreUnavailable):
            artifacts.probe()
        assert told == []
        with (
            artifacts.watched(lambda: told.append("silence")),
            pytest.raises(StoreUnavailable),
        ):
            artifacts.probe()
    assert told == ["silence"]

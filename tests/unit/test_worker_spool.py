"""The spool's files: found by whoever needs them, checked to the last byte, bounded, and never a reason to fail."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from engine import Metrics
from tasks.job import Job, JobStatus
from tasks.request import GenerationRequest
from tasks.settings import Settings
from worker.parcel import Damaged, Item, Manifest, open_parcel
from worker.spool import MAX_AGE_S, Spool, spool_folder, system_of

BODIES = [b"first" * 100, b"second" * 200]
NOW = datetime(2026, 11, 30, 12, 0, 0, 123_000, tzinfo=UTC)
ENGINE = Metrics(
    queue_ms=1,
    encode_ms=2,
    denoise_ms=3,
    decode_ms=4,
    total_ms=10,
    batch_rows_mean=1.5,
    device_seconds=0.5,
    apart=("x",),
)


def a_job(job_id: str = "j", retry_of: str | None = None, **fields: Any) -> Job:
    request = GenerationRequest(prompt="a boat", model="tiny", seed=7, **fields)
    return Job(id=job_id, status=JobStatus.RUNNING, request=request, created_at=NOW, retry_of=retry_of)


def manifest_of(job: Job, bodies: list[bytes] = BODIES) -> Manifest:
    items = tuple(
        Item(content_type="image/png", seed=7 + k, size_bytes=len(body), sha256=hashlib.sha256(body).hexdigest())
        for k, body in enumerate(bodies)
    )
    return Manifest(
        job_id=job.id, created_at=job.created_at, attempt=2, items=items, warnings=("rotated",), engine=ENGINE
    )


def keep(spool: Spool, job: Job) -> Path:
    path = spool.keep(manifest_of(job), BODIES, job)
    assert path is not None
    return path


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool", 1_000_000, "here")


def test_another_process_finds_all_that_was_kept(spool: Spool, tmp_path: Path) -> None:
    path = keep(spool, a_job())
    found = Spool(tmp_path / "spool", 1_000_000, "here").find(a_job())
    assert found is not None
    assert found.manifest == manifest_of(a_job()).model_copy(update={"system": "here"})
    assert [found.body(k) for k in (1, 0)] == BODIES[::-1]
    assert path.stat().st_mode & 0o077 == path.parent.stat().st_mode & 0o077 == 0, "pictures are private"


@pytest.mark.parametrize(
    "other",
    [
        a_job("J"),
        a_job("k"),
        a_job(num_inference_steps=9),
        a_job().model_copy(update={"created_at": NOW.replace(second=1)}),
    ],
)
def test_nobody_elses_outputs_are_found(spool: Spool, other: Job) -> None:
    keep(spool, a_job())
    assert spool.find(other) is None


def test_two_systems_with_a_job_of_one_id_keep_apart(spool: Spool, tmp_path: Path) -> None:
    other = Spool(tmp_path / "spool", 1_000_000, "elsewhere")
    theirs = other.keep(manifest_of(a_job(), BODIES[:1]), BODIES[:1], a_job())
    assert theirs is not None and spool.find(a_job()) is None
    spool.retire(keep(spool, a_job()))
    mine, retried = spool.find(a_job()), spool.find(a_job("fresh", retry_of="j"))
    assert mine is not None and retried is not None and theirs.exists()
    assert mine.manifest == retried.manifest == manifest_of(a_job()).model_copy(update={"system": "here"})


def test_a_retry_finds_what_its_dead_letter_rendered(spool: Spool) -> None:
    spool.retire(keep(spool, a_job("letter")))
    retried = a_job("fresh", retry_of="letter").model_copy(update={"created_at": NOW.replace(hour=20)})
    found = spool.find(retried)
    assert found is not None and found.manifest.job_id == "letter"
    assert spool.find(a_job("fresh", retry_of="letter", num_inference_steps=9)) is None


@pytest.mark.parametrize("place", [0, 25, 60, 200, -1, -700])
def test_a_flipped_bit_anywhere_is_seen_and_its_file_dropped(spool: Spool, place: int) -> None:
    path = keep(spool, a_job())
    body = bytearray(path.read_bytes())
    body[place] ^= 1
    path.write_bytes(body)
    assert spool.find(a_job()) is None
    assert not path.exists()


@pytest.mark.parametrize("length", [0, 10, 55, 300, -1])
def test_a_file_that_was_cut_off_is_dropped(spool: Spool, length: int) -> None:
    path = keep(spool, a_job())
    path.write_bytes(path.read_bytes()[:length])
    assert spool.find(a_job()) is None
    assert not path.exists()


def test_bytes_that_rot_after_they_were_checked_are_seen_when_they_are_sent(spool: Spool) -> None:
    path = keep(spool, a_job())
    found = spool.find(a_job())
    assert found is not None
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert found.body(0) == BODIES[0]
    with pytest.raises(Damaged):
        found.body(1)
    path.unlink()
    with pytest.raises(Damaged, match="cannot be read"):
        found.body(0)


def test_of_a_version_to_come_it_reads_nothing(spool: Spool) -> None:
    path = keep(spool, a_job())
    path.write_bytes(path.read_bytes().replace(b"parcel 1", b"parcel 2", 1))
    with pytest.raises(Damaged, match="no parcel"):
        open_parcel(path)


def test_the_bound_holds_and_only_what_waits_for_a_retry_makes_room(tmp_path: Path) -> None:
    probe = keep(Spool(tmp_path / "probe", 1_000_000), a_job())
    spool = Spool(tmp_path / "spool", int(2.5 * probe.stat().st_size))
    first, second = keep(spool, a_job("first")), keep(spool, a_job("second"))
    assert spool.keep(manifest_of(a_job("third")), BODIES, a_job("third")) is None
    assert spool.is_full and first.exists() and second.exists()
    spool.retire(first)
    assert keep(spool, a_job("third")).exists()
    assert not spool.is_full
    assert {entry.path.name.split(".")[0] for entry in spool.entries()} == {"second", "third"}


@contextmanager
def no_file_can_be_opened() -> Iterator[None]:
    """As in a process that has used up its descriptors."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_what_cannot_be_read_now_is_there_later(spool: Spool) -> None:
    path = keep(spool, a_job())
    with no_file_can_be_opened():
        assert spool.find(a_job()) is None
        assert spool.keep(manifest_of(a_job("other")), BODIES, a_job("other")) is None
        assert spool.entries() == []
    assert path.exists()
    assert spool.find(a_job()) is not None


def test_a_place_that_fails_at_every_look_fails_no_job(tmp_path: Path) -> None:
    """Its files' names are longer than the system takes."""
    folder = tmp_path
    while len(str(folder)) < 4_050:
        folder /= "x" * min(200, 4_090 - len(str(folder)) - 1)
    spool = Spool(folder, 1_000_000)
    assert spool.is_usable
    assert spool.keep(manifest_of(a_job()), BODIES, a_job()) is None
    assert spool.find(a_job()) is None


@contextmanager
def disk_full_after(num_bytes: int) -> Iterator[None]:
    """Writes beyond fail, as on a full disk."""
    handler, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_told_once_and_leaves_nothing(spool: Spool, caplog: pytest.LogCaptureFixture) -> None:
    with disk_full_after(500):
        for _ in range(3):
            assert spool.keep(manifest_of(a_job()), BODIES, a_job()) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert spool.size_bytes == 0
    assert keep(spool, a_job())


def test_a_folder_that_cannot_be_is_no_spool(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    for spool in (Spool(tmp_path / "file" / "spool", 1_000), Spool(tmp_path / "never", 0)):
        assert spool.keep(manifest_of(a_job()), BODIES, a_job()) is None
        assert spool.find(a_job()) is None and spool.entries() == []
        assert not spool.is_usable
    assert len(caplog.records) == 1, "0 bytes are a choice"


def test_what_a_killed_process_left_half_written_goes_and_so_does_the_forgotten(spool: Spool) -> None:
    old, new = keep(spool, a_job("old")), keep(spool, a_job("new"))
    half, fresh = old.with_suffix(".1234.tmp"), old.with_suffix(".5678.tmp")
    for path in (half, fresh):
        path.touch()
    for path, age_s in ((old, MAX_AGE_S + 60), (half, 3_600.0)):
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - age_s))
    spool.tidy()
    assert {path.name for path in new.parent.iterdir()} == {new.name, fresh.name}


def test_the_default_folder_is_the_workers_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert spool_folder(Settings(worker_name="gpu/../1")) == tmp_path / "cache/safelight/spool/gpu____1"
    assert spool_folder(Settings(spool_dir=tmp_path / "own")) == tmp_path / "own"
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert spool_folder(Settings(worker_name="w")) == tmp_path / f"safelight-{os.geteuid()}/spool/w"


def test_a_system_is_its_redis_and_its_keys_whoever_logs_in() -> None:
    urls = ["redis://:a@h/0", "redis://u:b@h/0", "redis://h/0", "redis://h/1"]
    one, two, three, four = (system_of(Settings(redis_url=url)) for url in urls)
    assert one == two == three != four
    assert system_of(Settings(redis_url=urls[0], key_prefix="other:")) != one


def test_metrics_come_back_as_they_were(spool: Spool) -> None:
    keep(spool, a_job())
    found = spool.find(a_job())
    assert found is not None and found.manifest.engine == replace(ENGINE)

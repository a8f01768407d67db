"""The spool: a folder of parcels, so that what is rendered outlives an outage of the object store, and this process.

Several processes may share the folder. A file's name tells its job and its request, so a parcel is found by whoever
claims the job next. Nothing here may fail a job: without room, or without a disk, its bytes stay in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.job import Job
from tasks.job_codec import encode_request
from tasks.settings import Settings
from worker.parcel import Damaged, Manifest, Parcel, Unreadable, open_parcel, write_parcel

log = logging.getLogger(__name__)

#: Of a job that lives; of one that failed because it could not be stored, kept for a retry as long as there is room.
_LIVE, _FAILED, _TEMPORARY = ".parcel", ".failed", ".tmp"
_TEMPORARY_S = 600.0
#: After this, whatever it is and whosever it is.
MAX_AGE_S = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One parcel's file."""

    path: Path
    size_bytes: int
    written_at: float

    @property
    def has_failed(self) -> bool:
        return self.path.suffix == _FAILED


class Spool:
    def __init__(self, folder: Path, max_bytes: int, system: str = "") -> None:
        self.system = system
        self._folder = folder
        self._max_bytes = max_bytes
        #: The last parcel found no room.
        self.is_full = False
        self._has_warned = False
        self.is_usable = max_bytes > 0 and self._prepare()

    def _prepare(self) -> bool:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._folder.stat().st_uid not in (os.geteuid(), 0):
                raise PermissionError(f"{self._folder} belongs to another user")
        except OSError as error:
            self._warn(error)
            return False
        return True

    def keep(self, manifest: Manifest, bodies: Sequence[bytes], job: Job) -> Path | None:
        """The file, not yet safe from a power cut (`Parcel.settle_on_disk`); None if it cannot be, with a warning."""
        if not self.is_usable or not self._make_room(manifest.size_bytes):
            return None
        path = self._path(job.id, job, _LIVE)
        temporary = self._folder / f"{path.stem}.{secrets.token_hex(4)}{_TEMPORARY}"
        try:
            with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                write_parcel(file, manifest.model_copy(update={"system": self.system}), bodies)
            temporary.replace(path)
        except OSError as error:
            self._warn(error)
            with contextlib.suppress(OSError):
                temporary.unlink()
            return None
        self.is_full = self._has_warned = False
        return path

    def find(self, job: Job) -> Parcel | None:
        """What an earlier attempt of this job rendered, or the job that it is the retry of; every byte checked."""
        for job_id in filter(None, (job.id, job.retry_of)):
            for suffix in (_LIVE, _FAILED):
                path = self._path(job_id, job, suffix)
                if not self.is_usable or not os.path.exists(path):  # False too for a disk that fails
                    continue
                parcel = self.open(path)
                if parcel is not None and (job_id != job.id or parcel.manifest.created_at == job.created_at):
                    return parcel
        return None

    def open(self, path: Path) -> Parcel | None:
        """None for a file that cannot be read, and for a damaged one, which is dropped."""
        try:
            parcel = open_parcel(path)
            parcel.check()
            return parcel
        except Unreadable as error:
            log.warning("a parcel is passed over: %s", error)
            return None
        except Damaged as error:
            log.warning("a parcel is dropped: %s", error)
            self.remove(path)
            return None

    def remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
            self.is_full = False

    def retire(self, path: Path) -> None:
        """Its job failed since the parcel could not be stored: keep it for a retry, until its room is needed."""
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(_FAILED))
            self.is_full = False

    def entries(self) -> list[Entry]:
        """The oldest first."""
        return sorted(self._files((_LIVE, _FAILED)), key=lambda entry: entry.written_at)

    def tidy(self) -> None:
        """Drop what a killed process left half-written, and what nobody came for in a month."""
        now = time.time()
        for entry in self._files((_TEMPORARY,)):
            if now - entry.written_at > _TEMPORARY_S:
                self.remove(entry.path)
        for entry in self.entries():
            if now - entry.written_at > MAX_AGE_S:
                self.remove(entry.path)

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self._files((_LIVE, _FAILED, _TEMPORARY)))

    def _path(self, job_id: str, job: Job, suffix: str) -> Path:
        """Systems may have jobs of one id, and some file systems know no case: the digest tells all of them apart."""
        digest = hashlib.sha256(f"{self.system}\n{job_id}\n{encode_request(job.request)}".encode()).hexdigest()
        return self._folder / f"{job_id}.{digest[:24]}{suffix}"

    def _make_room(self, size_bytes: int) -> bool:
        used = self.size_bytes
        if used + size_bytes <= self._max_bytes:
            return True
        for entry in self.entries():
            if used + size_bytes <= self._max_bytes:
                break
            if entry.has_failed:
                self.remove(entry.path)
                used -= entry.size_bytes
        if used + size_bytes > self._max_bytes:
            self.is_full = True
            self._warn(f"{used} of {self._max_bytes} bytes are taken (SAFELIGHT_SPOOL_MAX_BYTES)")
            return False
        return True

    def _files(self, suffixes: tuple[str, ...]) -> Iterator[Entry]:
        try:
            with os.scandir(self._folder) as found:
                for file in found:
                    if file.name.endswith(suffixes):
                        with contextlib.suppress(OSError):  # another process has removed it
                            about = file.stat()
                            yield Entry(Path(file.path), about.st_size, about.st_mtime)
        except OSError:
            return

    def _warn(self, why: object) -> None:
        """Once, until it works again."""
        if not self._has_warned:
            log.warning("finished outputs stay in memory, they cannot be spooled to %s: %s", self._folder, why)
        self._has_warned = True


def spool_folder(settings: Settings) -> Path:
    """The setting, or a folder of this worker's name in the user's cache, or below the system's temporary folder."""
    if settings.spool_dir is not None:
        return settings.spool_dir
    name = "".join(char if char.isalnum() or char in "-_" else "_" for char in settings.worker_name)
    cache = os.environ.get("XDG_CACHE_HOME")
    home = Path(cache) if cache else Path(os.path.expanduser("~/.cache"))
    for root in (home / "safelight", Path(tempfile.gettempdir()) / f"safelight-{os.geteuid()}"):
        folder = root / "spool" / name
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
    return Path(tempfile.gettempdir()) / f"safelight-{os.geteuid()}" / "spool" / name


def system_of(settings: Settings) -> str:
    """Names the Redis and the keys that a job's record is under, without the login."""
    place = (
        settings.redis_url.rpartition("@")[2] if "@" in settings.redis_url else settings.redis_url.partition("://")[2]
    )
    return hashlib.sha256(f"{place}\n{settings.key_prefix}".encode()).hexdigest()[:16]

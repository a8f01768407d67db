"""A parcel: the encoded outputs of a job, with all that its end needs. In memory, in a file of the spool, or in both.

The file is a line that names the format, the SHA-256 of the head, the head (length, JSON) and the bodies. Each body's
own SHA-256 is in the head, so that one can be read and checked without the others.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict, ValidationError

from engine import Metrics
from tasks.job import Output

_FORMAT = b"safelight parcel 1\n"
_DIGEST_BYTES, _LENGTH_BYTES, _MAX_HEAD_BYTES = 32, 8, 4 * 1024 * 1024


class Damaged(Exception):
    """The bytes are gone or are not those that were rendered: the job must be rendered again."""


class Unreadable(Damaged):
    """They are not there, or cannot be read now, which says nothing of them."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Item(_Record):
    """One output, without the place where it is stored."""

    content_type: str
    width: int | None = None
    height: int | None = None
    num_frames: int | None = None
    duration_s: float | None = None
    seed: int
    size_bytes: int
    sha256: str

    def at(self, uri: str) -> Output:
        return Output(uri=uri, **self.model_dump())


class Manifest(_Record):
    """Whose outputs they are, and what their attempt learned and took."""

    job_id: str
    created_at: datetime
    attempt: int
    #: Whose queue the job is in: the answer of another store says nothing of it.
    system: str = ""
    items: tuple[Item, ...]
    warnings: tuple[str, ...] = ()
    load_ms: float | None = None
    mode: str = "request"
    engine: Metrics | None = None

    @property
    def size_bytes(self) -> int:
        return sum(item.size_bytes for item in self.items)


class Parcel:
    """Raises `Damaged` where bytes are not what the manifest says."""

    def __init__(self, manifest: Manifest, bodies: Sequence[bytes] = (), path: Path | None = None) -> None:
        assert bodies or path is not None
        self.manifest = manifest
        #: Its file in the spool.
        self.path = path
        self._bodies = tuple(bodies)

    def body(self, k: int) -> bytes:
        item = self.manifest.items[k]
        body = self._bodies[k] if self._bodies else self._read(k)
        if hashlib.sha256(body).hexdigest() != item.sha256:
            raise Damaged(f"output {k} in {self.path} is damaged")
        return body

    def check(self) -> None:
        for k in range(len(self.manifest.items)):
            self.body(k)

    def settle_on_disk(self) -> None:
        """From here on the file alone holds the bytes, and a power cut does not take it. Raises `OSError`."""
        assert self.path is not None
        for place in (self.path, self.path.parent):
            handle = os.open(place, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        self._bodies = ()

    def _read(self, k: int) -> bytes:
        assert self.path is not None
        items = self.manifest.items
        try:
            with self.path.open("rb") as file:
                _read_head(file)
                file.seek(sum(item.size_bytes for item in items[:k]), os.SEEK_CUR)
                return file.read(items[k].size_bytes)
        except OSError as error:
            raise Unreadable(f"{self.path} cannot be read: {error}") from error


def write_parcel(file: BinaryIO, manifest: Manifest, bodies: Sequence[bytes]) -> None:
    head = manifest.model_dump_json().encode()
    rest = len(head).to_bytes(_LENGTH_BYTES) + head
    file.write(_FORMAT + hashlib.sha256(rest).digest() + rest)
    for body in bodies:
        file.write(body)


def open_parcel(path: Path) -> Parcel:
    """By its head; the bodies are checked when they are read. Raises `Damaged`."""
    try:
        with path.open("rb") as file:
            head = _read_head(file)
            manifest = Manifest.model_validate_json(head)
            if file.seek(0, os.SEEK_END) != parcel_bytes(len(head), manifest.size_bytes):
                raise Damaged(f"{path} has another length")
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error}") from error
    except ValidationError as error:
        raise Damaged(f"{path} is of another version") from error
    return Parcel(manifest, path=path)


def parcel_bytes(head_bytes: int, body_bytes: int) -> int:
    return len(_FORMAT) + _DIGEST_BYTES + _LENGTH_BYTES + head_bytes + body_bytes


def _read_head(file: BinaryIO) -> bytes:
    if file.read(len(_FORMAT)) != _FORMAT:
        raise Damaged(f"{file.name} is no parcel")
    digest, length = file.read(_DIGEST_BYTES), file.read(_LENGTH_BYTES)
    head = file.read(min(int.from_bytes(length), _MAX_HEAD_BYTES))
    if hashlib.sha256(length + head).digest() != digest:
        raise Damaged(f"{file.name} is damaged")
    return head

"""Outputs of a job into a folder, checked against the recorded digest."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from tasks.job import Job, Output
    from tasks.settings import Settings


def download(settings: Settings, jobs: Iterable[Job], folder: Path) -> list[Path]:
    """Every output as `{job id}-{n}.{ext}`; a file appears only when it is whole. Raises `StoreUnavailable`.

    A file of that name stays as it is: the same output is not written again, and another one gets a name beside it.
    """
    from tasks.artifacts import ArtifactStore

    wanted = [(job, number, output) for job in jobs for number, output in enumerate(job.outputs)]
    if not wanted:
        return []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        artifacts = ArtifactStore(settings)
        return [
            _save(artifacts.get(output.uri, output.size_bytes), output, folder / f"{job.id}-{number}{_suffix(output)}")
            for job, number, output in wanted
        ]
    except OSError as error:
        raise ConfigError(f"--output {folder}: {error.strerror}") from None


def check_folder(folder: Path | None) -> None:
    """Make it, before a job runs for it. Raises `ConfigError` if it cannot be one or cannot be written to."""
    if folder is None:
        return
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--output {folder}: is a file; name a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--output {folder}: cannot be made a folder: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"--output {folder}: cannot be written to")


def _save(body: bytes, output: Output, path: Path) -> Path:
    if hashlib.sha256(body).hexdigest() != output.sha256:
        raise StoreUnavailable(f"{output.uri} is not what the worker stored; try again, and look at the object store")
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.write_bytes(body)
    try:
        return _named(partial, path, body)
    finally:
        partial.unlink(missing_ok=True)


def _named(partial: Path, path: Path, body: bytes) -> Path:
    """Link it to the first free name: `x.png`, `x.2.png`, ...; two programs that save at once get two names."""
    for number in itertools.count(1):
        name = path if number == 1 else path.with_name(f"{path.stem}.{number}{path.suffix}")
        try:
            _link(partial, name)
            return name
        except FileExistsError:
            if name.is_file() and name.read_bytes() == body:
                return name
    raise AssertionError("counting ends nowhere")


def _link(partial: Path, name: Path) -> None:
    """Raises `FileExistsError`, without a gap between the look and the deed where the file system has links."""
    try:
        os.link(partial, name)
    except FileExistsError:
        raise
    except OSError:
        if name.exists():
            raise FileExistsError(name) from None
        os.replace(partial, name)


def _suffix(output: Output) -> str:
    return Path(output.uri).suffix

"""Outputs of a job into a folder, checked against the recorded digest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from tasks.job import Job, Output
    from tasks.settings import Settings


def download(settings: Settings, jobs: Iterable[Job], folder: Path) -> list[Path]:
    """Every output as `{job id}-{n}.{ext}`; a file appears only when it is whole. Raises `StoreUnavailable`."""
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


def _save(body: bytes, output: Output, path: Path) -> Path:
    if hashlib.sha256(body).hexdigest() != output.sha256:
        raise StoreUnavailable(f"{output.uri} is not what the worker stored; try again, and look at the object store")
    partial = path.with_name(f".{path.name}.part")
    partial.write_bytes(body)
    os.replace(partial, path)
    return path


def _suffix(output: Output) -> str:
    return Path(output.uri).suffix

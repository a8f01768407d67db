"""Presigned URLs for whoever has no need of the object store but for its answers."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tasks.job import Output
from tasks.settings import Settings

if TYPE_CHECKING:
    from tasks.artifacts import ArtifactStore


class ResultLinks:
    """Signs with one client of the object store, which is made when it is first needed: boto3 takes a good part of a
    second to import, and a tenth to make a client, and most producers never need it. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._artifacts: ArtifactStore | None = None

    def urls(self, outputs: Iterable[Output], expires_s: int) -> list[str]:
        """One for each, which is good for `expires_s`."""
        return [self._store().presign(output.uri, expires_s) for output in outputs]

    def _store(self) -> ArtifactStore:
        with self._lock:
            if self._artifacts is None:
                from tasks.artifacts import ArtifactStore

                self._artifacts = ArtifactStore(self._settings)
            return self._artifacts

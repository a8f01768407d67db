"""What other workers have loaded, for one that is short of memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tasks.store import JobStore
from worker.model_shelf import ModelShelf


def look_around(store: JobStore, own_name: str, shelf: ModelShelf) -> None:
    """Asks only while something is wanted that is not here."""
    if shelf.is_short:
        shelf.note_elsewhere(loaded_elsewhere(store.workers(), own_name))


def loaded_elsewhere(workers: Sequence[Mapping[str, Any]], own_name: str) -> Iterator[str]:
    """The models that another worker has in memory and takes jobs for."""
    for info in workers:
        if info.get("name") != own_name and info.get("state") == "ready":
            models = info.get("models", {})
            yield from (name for name, told in models.items() if told.get("state") == "loaded")

"""The job, its store and the producer side. Never imports torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasks.async_client import AsyncClient
    from tasks.client import Client
    from tasks.job import Job
    from tasks.request import GenerationRequest

__all__ = ["AsyncClient", "Client", "GenerationRequest", "Job"]

_HOMES = {
    "AsyncClient": "tasks.async_client",
    "Client": "tasks.client",
    "GenerationRequest": "tasks.request",
    "Job": "tasks.job",
}


def __getattr__(name: str) -> Any:
    """The public names, imported at first use: the engine's side of an import of `tasks` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tasks' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

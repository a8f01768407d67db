"""The seam between an engine's face and what serves its inbox: one device here, or ranks in processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Protocol

from ..adapter import Capabilities
from ..checkpoint import Checkpoint
from ..device_memory import DeviceMemory
from ..stats import EngineStats, RunningGroup


class Executor(Protocol):
    """`run` is the whole life of the engine's thread. What `call`, `pause`, `resume`, `profile` and `export` are about
    happens on that thread, and its result may be a future; all else is safe from any thread.
    """

    @property
    def model(self) -> str | None:
        """What ties a checkpoint to this model; None in request mode."""

    def run(self, ready: Future[Capabilities]) -> None:
        """Load, serve, tidy up. `ready` gets the model's capabilities, or the error that kept it from loading."""

    def stats(self) -> EngineStats:
        """How it goes. Never blocks, works in any state."""

    def groups(self) -> tuple[RunningGroup, ...]:
        """What is under way. Never blocks, works in any state."""

    def memory(self) -> DeviceMemory | None:
        """Of its devices together; None where they have none of their own."""

    def call(
        self,
        method: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        *,
        rank: int | None,
        timeout_s: float | None,
    ) -> Callable[[], object]:
        """The call of a method of the model, to be made on the engine's thread. Raises ValueError, TypeError."""

    def profile(self, start: bool, prefix: str) -> Callable[[], object]:
        """The call that starts or stops a profile."""

    def pause(self) -> object:
        """Start no more batches, once the running ones have ended."""

    def resume(self) -> object:
        """Undo `pause`."""

    def export(self, request_id: str, timeout_s: float | None = None) -> Checkpoint | Future[object] | None:
        """See DiffusionEngine.export. An export that has not begun after `timeout_s` never will."""

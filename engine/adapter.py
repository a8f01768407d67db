"""The seam between the engine and a model: what the device thread asks of a pipeline, and nothing of torch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from .batch import Batch
from .batch_key import BatchKey, Task
from .checkpoint import RowState
from .request import DiffusionRequest
from .result import Media, Modality, Stage

if TYPE_CHECKING:
    from PIL import Image

    from .pending import Pending

#: a picture of row `n` of the running batch as it stands now
PreviewRow = Callable[[int], "Image.Image"]


@dataclass(frozen=True, slots=True)
class Output:
    """A row's result, and what of its request was not followed to the letter."""

    media: Media
    warnings: tuple[str, ...] = ()


#: one a row, in order: its output, or why this row alone has none
RowOutcome = Output | Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a loaded model can do. `max_rows` 1 means that it must not be batched; None sets no bound.

    `versions` names the libraries whose change could change its outputs. `mode` is how it will be served, and
    `mode_reason` says in words why, both settled while it loads.
    `memory_bytes` is what its weights, and a row of its own size while it runs, take of the device; None: not measured.
    `default_size` is the (height, width) that the model was made for, `size_multiple` must divide both sides; neither
    has a meaning for a model that makes sound.
    """

    model_class: str
    device: str
    dtype: str
    tasks: frozenset[Task]
    default_size: tuple[int, int]
    modality: Modality = "image"
    size_multiple: int = 8
    max_rows: int | None = None
    versions: str = ""
    mode: Literal["request", "step"] = "request"
    mode_reason: str = "that is all this model offers"
    memory_bytes: int | None = None


class StepHook(Protocol):
    """Called on the device thread at every boundary of a batch; raises BatchAborted to stop it there."""

    def __call__(self, stage: Stage, step: int, num_steps: int, preview: PreviewRow | None = None) -> None:
        """`step` of `num_steps` denoise steps are done and `stage` goes on."""


class RowCall(Protocol):
    """Step mode: a pipeline call under way for one row, held where it calls the model. Device thread only."""

    @property
    def outcome(self) -> RowOutcome | Pending | None:
        """Set once the call has ended."""

    @property
    def key(self) -> Hashable:
        """Read from the model call: law, calls with equal keys can share a forward."""

    @property
    def stage(self) -> Stage:
        """What the model call is for."""

    @property
    def waits(self) -> bool:
        """It has its answer to the model call, and goes on when the others of its gang have theirs."""

    def state(self) -> RowState | None:
        """Where it stands, for `open` to go on from; None before its first step. Raises TypeError."""

    def fail(self, error: Exception) -> None:
        """Let the model call raise `error`."""

    def abort(self) -> None:
        """End the pipeline call where it is held. Nothing happens to one that has ended."""


@runtime_checkable
class OpensGangs(Protocol):
    """An adapter that runs rows of equal key in one pipeline call, and keeps them apart at its model calls."""

    @property
    def has_gangs(self) -> bool:
        """Whether this model's rows may be in one call. Settled while it loads."""

    def open_gang(self, batch: Batch, hooks: Sequence[StepHook]) -> Sequence[RowCall]:
        """`open` for all rows of a batch, with a hook for each; what comes is one RowCall a row, in order.

        Any of them may be advanced, end or fail without the others. Raises as `open` does, for all of them.
        """


class PipelineAdapter(Protocol):
    """One model. Every method is called on the device thread, `load` first, `close` last and in any case.

    `run` serves request mode; `open` and `advance` serve step mode, for a model whose capabilities say so.
    """

    def load(self) -> Capabilities:
        """Make the model ready. Raises ModelLoadError."""

    def batch_key(self, request: DiffusionRequest) -> BatchKey:
        """Resolve a request against the model. Raises InvalidRequest for what can never run. Cheap, no device work."""

    def prepare(self, request: DiffusionRequest) -> Future[object] | None:
        """Begin, beside the device thread, with what has to be fetched before the request can run. The request is
        asked for again when the future is done; None when nothing is missing, or it cannot be had. Never blocks.
        """

    def run(self, batch: Batch, on_step: StepHook) -> Sequence[RowOutcome | Pending]:
        """Denoise and decode. A row's output depends on its own request alone. What is left of it and needs no device
        thread, such as the copy from the device, may be Pending.

        Raises OutOfMemory when the rows do not fit, BatchAborted as the hook raised it, anything else when the
        culprit is unknown. Leaves the model fit for the next batch in every case.
        """

    def open(self, batch: Batch, on_step: StepHook, *, alone: bool, resume: RowState | None = None) -> RowCall:
        """Start the pipeline call of a batch of one row, or go on with it; it is held at its first model call.

        `alone` keeps every forward of it to itself, so that it equals a plain call to the last bit.
        """

    def advance(self, calls: Sequence[RowCall]) -> None:
        """One forward for held calls of equal key, then each goes on to its next model call or its end.

        Raises OutOfMemory, or what the forward raised; the calls are then held as before.
        """

    def methods(self) -> Mapping[str, Callable[..., object]]:
        """What `collective_rpc` may call, by name."""

    def probe(self) -> None:
        """After an error: raises DeviceLost if the device is unusable."""

    def close(self) -> None:
        """Let go of the model and its memory. Idempotent."""

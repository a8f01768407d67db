"""What a request's stream carries: a sum type that ends with exactly one of Completed, Aborted, Failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

Stage = Literal["encoding", "denoising", "decoding"]
ErrorType = Literal["invalid_request", "invalid_image", "model_error", "out_of_memory", "deadline_exceeded", "internal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """One output. `pixels` is uint8 RGB: `[H, W, 3]` for an image (`[T, H, W, 3]` is reserved for video)."""

    kind: Literal["image"] = "image"
    pixels: NDArray[np.uint8]
    seed: int


def media_parts(media: Media) -> dict[str, Any]:
    """Numbers, texts and arrays: what a checkpoint keeps of a finished row."""
    return {field.name: getattr(media, field.name) for field in fields(media)}


def media_from(parts: Mapping[str, Any]) -> Media:
    """Undo `media_parts`."""
    return Media(**parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Times of one request in ms of wall clock, and its share of the device.

    `batch_rows_mean` is the mean size, in rows, of the batches its rows ran in. `device_seconds` is batch seconds
    times own rows over all rows, summed over every batch that worked for it, failed ones included.
    """

    queue_ms: float
    encode_ms: float
    denoise_ms: float
    decode_ms: float
    total_ms: float
    batch_rows_mean: float
    device_seconds: float


@dataclass(frozen=True, slots=True)
class Started:
    """The request's first batch starts, with `batch_rows` rows in it."""

    request_id: str
    batch_rows: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Step `step` of `num_steps` is done. A request split over several batches counts the steps of all of them."""

    request_id: str
    stage: Stage
    step: int
    num_steps: int


@dataclass(frozen=True, slots=True)
class Preview:
    """A rough picture of the request's first unfinished row after `step`."""

    request_id: str
    step: int
    image: Image.Image


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part `index` of `num_chunks` of a result that is delivered in pieces (reserved for video)."""

    request_id: str
    index: int
    num_chunks: int
    media: Media


@dataclass(frozen=True, slots=True)
class Completed:
    """All outputs, in order of `k`."""

    request_id: str
    media: tuple[Media, ...]
    metrics: Metrics
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aborted:
    """Ended on demand. `step` is the last finished step, None when it never ran."""

    request_id: str
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Ended by an error. `retryable` says whether the same request may succeed elsewhere or later."""

    request_id: str
    error_type: ErrorType
    message: str
    retryable: bool = False
    traceback: str | None = field(default=None, repr=False)


Terminal = Completed | Aborted | Failed
Event = Started | Progress | Preview | Chunk | Terminal


def is_terminal(event: Event) -> bool:
    return isinstance(event, Completed | Aborted | Failed)

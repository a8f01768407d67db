"""What a request's stream carries: a sum type that ends with exactly one of Completed, Aborted, Failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

Modality = Literal["image", "video", "audio"]
Stage = Literal["encoding", "denoising", "decoding"]
ErrorType = Literal["invalid_request", "invalid_image", "model_error", "out_of_memory", "deadline_exceeded", "internal"]

#: what a Media of each kind holds
MEDIA_FIELDS: dict[Modality, set[str]] = {
    "image": {"pixels"},
    "video": {"pixels", "fps"},
    "audio": {"samples", "sample_rate"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """One output. `kind` says what it holds; all else is None.

    image: `pixels`, uint8 RGB `[H, W, 3]`. video: `pixels`, uint8 RGB `[T, H, W, 3]`, and `fps`. audio: `samples`,
    float32 `[samples, channels]`, full scale at -1 and 1 and not clipped, and `sample_rate` in Hz.
    """

    kind: Modality = "image"
    seed: int
    pixels: NDArray[np.uint8] | None = None
    fps: float | None = None
    samples: NDArray[np.float32] | None = None
    sample_rate: int | None = None

    def __post_init__(self) -> None:
        holds = {"pixels": self.pixels, "fps": self.fps, "samples": self.samples, "sample_rate": self.sample_rate}
        assert {name for name, value in holds.items() if value is not None} == MEDIA_FIELDS[self.kind]

    @property
    def size(self) -> tuple[int, int] | None:
        """(width, height) in pixels, None for sound."""
        return None if self.pixels is None else (self.pixels.shape[-2], self.pixels.shape[-3])

    @property
    def num_frames(self) -> int | None:
        """Of a video."""
        return len(self.pixels) if self.kind == "video" and self.pixels is not None else None

    @property
    def duration_s(self) -> float | None:
        """Of a video or a sound."""
        if self.samples is not None and self.sample_rate is not None:
            return len(self.samples) / self.sample_rate
        return None if self.num_frames is None or self.fps is None else self.num_frames / self.fps


def media_parts(media: Media) -> dict[str, Any]:
    """Numbers, texts and arrays: what a checkpoint keeps of a finished row."""
    return {field.name: getattr(media, field.name) for field in fields(media)}


def media_from(parts: Mapping[str, Any]) -> Media:
    """Undo `media_parts`."""
    return Media(**parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Times of one request in ms of wall clock, and its share of the device.

    `batch_rows_mean` is the mean size, in rows, of the batches its rows ran in, `batch_rows_max` that of the largest.
    `device_seconds` is batch seconds times own rows over all rows, summed over every batch that worked for it, failed
    ones included. `apart` names the parameters in which requests differed that were there and could not share with it,
    `mates` those that did share batches with it, the first eight by their ids.
    """

    queue_ms: float
    encode_ms: float
    denoise_ms: float
    decode_ms: float
    total_ms: float
    batch_rows_mean: float
    device_seconds: float
    batch_rows_max: int = 0
    apart: tuple[str, ...] = ()
    mates: tuple[str, ...] = ()

    def vllm_omni(self) -> dict[str, float]:
        """The times under the names that vLLM-Omni's engine gives them, for dashboards that know those."""
        return {
            "scheduler_queue_wait_ms": self.queue_ms,
            "forward_time_ms": self.encode_ms + self.denoise_ms,
            "vae_decode_time_ms": self.decode_ms,
            "diffusion_engine_total_time_ms": self.total_ms,
        }


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
    """Output `index` of `num_chunks`, as soon as it is done; Completed brings the last one, and all again."""

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
    """Ended on demand. `step` is the last finished step, None when it never ran; so for `metrics`, what it took."""

    request_id: str
    step: int | None = None
    metrics: Metrics | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """Ended by an error. `retryable` says whether the same request may succeed elsewhere or later.

    `metrics` tells what it took so far, None when it never ran.
    """

    request_id: str
    error_type: ErrorType
    message: str
    retryable: bool = False
    traceback: str | None = field(default=None, repr=False)
    metrics: Metrics | None = field(default=None, compare=False)


Terminal = Completed | Aborted | Failed
Event = Started | Progress | Preview | Chunk | Terminal


def is_terminal(event: Event) -> bool:
    return isinstance(event, (Completed, Aborted, Failed))  # a union would be made anew each time

"""What a pipeline call gave, as one Media a row. Knows the outputs of diffusers by their fields."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from ..request import Row
from ..result import Media
from .task_pipeline import TaskPipeline

Floats = NDArray[np.floating[Any]]


def raw_rows(result: Any) -> Any:
    """One array a row: `[H, W, 3]` or `[T, H, W, 3]` in 0 to 1, or sound `[channels, samples]` or `[samples]`.

    Or a tensor of all, as `late_pictures` has it.
    Raises ModelError for an output without any, and for one in which a row is missing.
    """
    for field in ("images", "frames", "audios"):
        rows = result.get(field)
        if rows is not None:
            if any(row is None for row in rows):
                raise ModelError(f"the {field} of a {type(result).__name__} are not all there")
            return rows
    raise ModelError(f"a {type(result).__name__} has no images, frames or audios")


def media(raw: Floats, row: Row, pipeline: TaskPipeline) -> Media:
    match pipeline.modality:
        case "image":
            return Media(pixels=_pixels(raw), seed=row.seed)
        case "video":
            return Media(kind="video", pixels=_pixels(raw), fps=pipeline.playback_fps(row.request), seed=row.seed)
        case "audio":
            samples = np.ascontiguousarray(np.atleast_2d(raw).T, dtype=np.float32)
            return Media(kind="audio", samples=samples, sample_rate=pipeline.sample_rate, seed=row.seed)


def _pixels(raw: Floats) -> NDArray[np.uint8]:
    return (raw * 255).round().astype(np.uint8)

"""The model as every peer serves it: plain diffusers, one thread, rows of one shape in one call.

Needs torch and diffusers only, so that it runs in the peers' environment too. A request is a mapping: id, prompt, size,
steps, guidance, seed.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: the folder of the model, and the file for steps (optional), as the drivers hand them to a peer's process
MODEL_VARIABLE = "BENCH_MODEL"
STEPS_VARIABLE = "BENCH_STEPS"
#: the most rows of one call, for every system that batches
MAX_ROWS = 8

Request = Mapping[str, Any]


class Model:
    """A loaded pipeline. Not thread-safe, as a pipeline is not."""

    def __init__(self, folder: str | None = None) -> None:
        import torch
        import transformers
        from diffusers import DiffusionPipeline
        from diffusers.utils import logging

        for quiet in (logging, transformers.logging):
            quiet.disable_progress_bar()
        torch.set_num_threads(1)
        self._torch = torch
        self.pipeline = DiffusionPipeline.from_pretrained(
            folder or os.environ[MODEL_VARIABLE], dtype=torch.float32, local_files_only=True
        )
        self.pipeline.set_progress_bar_config(disable=True)
        self._steps = StepLog.from_environment()

    def render(self, requests: Sequence[Request]) -> list[bytes]:
        """A PNG for each, in order. Requests of one shape share a call; shapes go one after the other."""
        pictures: dict[int, bytes] = {}
        for indices in by_shape(requests).values():
            for start in range(0, len(indices), MAX_ROWS):
                part = indices[start : start + MAX_ROWS]
                pictures.update(zip(part, self.call(self.pipeline, [requests[index] for index in part]), strict=True))
        return [pictures[index] for index in range(len(requests))]

    def call(self, pipeline: Any, rows: Sequence[Request]) -> list[bytes]:
        """One call of the pipeline (or of a view of it) for rows of one shape."""
        first = rows[0]
        images = pipeline(
            [row["prompt"] for row in rows],
            height=first["size"],
            width=first["size"],
            num_inference_steps=first["steps"],
            guidance_scale=first["guidance"],
            generator=[self._torch.Generator().manual_seed(row["seed"]) for row in rows],
            callback_on_step_end=self._steps and self._steps.callback(rows),
        ).images
        return [png(image) for image in images]


def by_shape(requests: Sequence[Request]) -> dict[tuple[Any, ...], list[int]]:
    """Indices of the requests that one pipeline call can serve, by what such a call has only once."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, one in enumerate(requests):
        groups.setdefault((one["size"], one["steps"], one["guidance"]), []).append(index)
    return groups


def png(image: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


class StepLog:
    """A line for each denoise step: the monotonic clock, which all processes of a machine share, and the rows' ids."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1, encoding="utf-8")

    @classmethod
    def from_environment(cls) -> StepLog | None:
        path = os.environ.get(STEPS_VARIABLE)
        return cls(Path(path)) if path else None

    def callback(self, rows: Sequence[Request]) -> Any:
        ids = " ".join(row["id"] for row in rows)

        def note(pipeline: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            self._file.write(f"{time.monotonic():.6f} {ids}\n")
            return tensors

        return note

"""One request to the engine, and its rows: a row is one output, the unit in which batches are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .checkpoint import Checkpoint
from .params import SamplingParams, _require_finite, _require_int, require_text

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffusionRequest:
    """A prompt with its parameters and, for image-to-image and inpainting, its images.

    `priority` is 0 to 9, 9 first. `deadline_s` counts from `submit`. `solo` keeps batch-mates away (quarantine).
    `resume` is a checkpoint of an equal request; step mode goes on from there; request mode
    begins anew, and so does a request that the checkpoint is not of, with a warning.
    Raises ValueError naming the field.
    """

    request_id: str
    prompt: str
    params: SamplingParams
    image: Image.Image | None = None
    mask_image: Image.Image | None = None
    priority: int = 5
    deadline_s: float | None = None
    solo: bool = False
    resume: Checkpoint | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.request_id, str) or not self.request_id:
            raise ValueError(f"request_id must be a non-empty string, not {self.request_id!r}")
        require_text("prompt", self.prompt)
        _require_int("priority", self.priority, 0, 9)
        if self.deadline_s is not None:
            _require_finite("deadline_s", self.deadline_s, 0.0, above=True)
        if self.mask_image is not None and self.image is None:
            raise ValueError("mask_image needs an image")

    @property
    def alone(self) -> bool:
        """Whether it may share a batch with no other request."""
        return self.solo or self.params.exact


@dataclass(frozen=True, slots=True)
class Row:
    """Output `index` of `request`."""

    request: DiffusionRequest
    index: int

    @property
    def seed(self) -> int:
        return self.request.params.seed + self.index

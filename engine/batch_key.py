"""What rows must share to run in one pipeline call. Adapters build the key, so that whoever collates also decides."""

from collections.abc import Hashable
from dataclasses import dataclass, fields
from typing import Literal

from .params import Loras

Task = Literal["text2image", "image2image", "inpaint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchKey:
    """Law: rows with equal keys always collate. Sizes are pixels; `image_size` is the conditioning image's (W, H).

    `strength`, `noise_scheduler`, `num_frames` and `fps` hold what will run, defaults filled in, so that saying a
    default aloud changes no key. None, or a size of 0: the pipeline takes none. `extra` is the adapter's own, for
    conditions that only its pipeline has.
    """

    task: Task
    height: int
    width: int
    num_inference_steps: int
    guidance_scale: float
    has_negative: bool
    strength: float | None = None
    noise_scheduler: str | None = None
    num_frames: int | None = None
    fps: float | None = None
    duration_s: float | None = None
    image_size: tuple[int, int] | None = None
    loras: Loras = ()
    extra: Hashable = None

    @property
    def num_steps(self) -> int:
        """Denoise steps that will run: those asked for, cut short by strength."""
        return self.num_inference_steps if self.strength is None else int(self.num_inference_steps * self.strength)

    def differences(self, other: "BatchKey") -> tuple[str, ...]:
        """Names of the parameters in which the two differ."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) != getattr(other, field.name))

    @property
    def guided(self) -> bool:
        """Whether the denoiser sees each row twice."""
        return self.guidance_scale > 1.0

    @property
    def footprint(self) -> Hashable:
        """What decides the memory a row takes; steps and strength do not."""
        return self.task, self.height, self.width, self.num_frames, self.duration_s, self.guided

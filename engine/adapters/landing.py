"""What a pipeline call gave, on its way from the device: rows as arrays on the host, and which of them are finite."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from .copy_lane import CopyLane
from .outputs import Floats

#: hears of rows and the last latents once they are there
Arrived = Callable[[Sequence[Floats], torch.Tensor | None], None]


class Landing:
    """Begun on the device thread, which then goes on; whoever asks for a row waits."""

    def __init__(self, lane: CopyLane, rows: Any, latents: torch.Tensor | None, arrived: Arrived) -> None:
        """`rows`: arrays, or what a pipeline would make arrays of, `[B, C, H, W]` or `[B, T, C, H, W]` in 0 to 1."""
        self._arrays = None if isinstance(rows, torch.Tensor) else rows
        self._has_latents = latents is not None
        sent = [tensor for tensor in (rows, latents) if isinstance(tensor, torch.Tensor)]
        self._copy = lane.send(sent)
        self._arrived = arrived

    def row(self, index: int) -> Floats:
        return self._landed[0][index]

    def is_finite(self, index: int) -> bool:
        """The row, and the latents that it was made of."""
        rows, latents = self._landed
        whole = latents is None or len(latents) != len(rows) or bool(np.isfinite(latents[index]).all())
        return whole and bool(np.isfinite(rows[index]).all())

    @cached_property
    def _landed(self) -> tuple[Sequence[Floats], Floats | None]:
        with torch.inference_mode():  # the mode that the tensors were made in
            there = list(self._copy.wait())
            latents = there.pop() if self._has_latents else None
            rows: Sequence[Floats] = list(_as_diffusers_does(there[0])) if self._arrays is None else self._arrays
            self._arrived(rows, latents)
            return rows, None if latents is None else latents.float().numpy()


def _as_diffusers_does(pictures: torch.Tensor) -> Floats:
    """Colours last, in float32."""
    arrays: Floats = pictures.movedim(-3, -1).float().numpy()
    return arrays

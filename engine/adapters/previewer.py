"""Rough pictures of latents in the middle of a run, without a decoder.

A VAE's picture is close to a linear map of its latents, pixel by pixel. The map is not looked up but learned by least
squares from the pictures that this model has finished, so it fits every VAE and is there after the first.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

#: pictures to learn from; more would not help
ENOUGH = 16
#: weight of the belief that a latent channel says nothing, against latents that hardly vary
RIDGE = 1e-3
LONGEST_SIDE = 256

Floats = NDArray[np.floating[Any]]


class Previewer:
    """Latents to RGB for one model. `can` is False until it has seen a finished picture."""

    def __init__(self) -> None:
        self._gram: Floats | None = None
        self._target: Floats | None = None
        self._map: Floats | None = None
        self._num_seen = 0

    @property
    def can(self) -> bool:
        return self._map is not None

    def learn(self, latents: torch.Tensor, pictures: Sequence[Floats]) -> None:
        """From final latents `[B, C, h, w]` and their pictures, each `[H, W, 3]` in 0 to 1."""
        if self._num_seen >= ENOUGH:
            return
        for row, picture in zip(_columns(latents), pictures, strict=True):
            height, width = latents.shape[-2:]
            small = _shrunk(picture, width, height).reshape(-1, 3)
            gram, target = row.T @ row, row.T @ small
            self._gram = gram if self._gram is None else self._gram + gram
            self._target = target if self._target is None else self._target + target
            self._num_seen += 1
        assert self._gram is not None
        assert self._target is not None
        ridge = RIDGE * np.trace(self._gram) / len(self._gram) * np.eye(len(self._gram))
        self._map = np.linalg.solve(self._gram + ridge, self._target)

    def picture(self, latents: torch.Tensor) -> Image.Image:
        """Of one row, `[1, C, h, w]`, enlarged to a side of at most 256 pixels."""
        assert self._map is not None
        height, width = latents.shape[-2:]
        (row,) = _columns(latents)
        pixels = np.clip(row @ self._map, 0, 1).reshape(height, width, 3)
        image = Image.fromarray((pixels * 255).round().astype(np.uint8))
        scale = max(1, LONGEST_SIDE // max(height, width))
        return image.resize((width * scale, height * scale), Image.Resampling.BICUBIC)


def _columns(latents: torch.Tensor) -> Sequence[Floats]:
    """For each row `[h * w, C + 1]`, the last column ones."""
    values = latents.detach().float().cpu().permute(0, 2, 3, 1).flatten(1, 2).numpy().astype(np.float64)
    ones = np.ones((*values.shape[:2], 1))
    return list(np.concatenate([values, ones], axis=2))


def _shrunk(picture: Floats, width: int, height: int) -> Floats:
    """Means of the pixels that lie over each latent."""
    channels = [
        Image.fromarray(np.ascontiguousarray(picture[..., k], np.float32)).resize((width, height), Image.Resampling.BOX)
        for k in range(3)
    ]
    return np.stack([np.asarray(channel, dtype=np.float64) for channel in channels], axis=2)

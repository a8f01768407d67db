"""Random pipelines large enough that a forward costs milliseconds and small enough that batching helps a CPU."""

from __future__ import annotations

import functools
from typing import Any

import diffusers
import torch

from engine import testing_pipelines

#: of a text, where the pipeline would pad to 512: more than the pictures have, and then one thread gains nothing
TEXT_TOKENS = 16


class ShortFlux(diffusers.FluxPipeline):  # type: ignore[misc]
    """FluxPipeline with texts of 16 tokens."""

    @functools.wraps(diffusers.FluxPipeline.__call__)
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **{"max_sequence_length": TEXT_TOKENS, **kwargs})


class ShortWan(diffusers.WanPipeline):  # type: ignore[misc]
    """WanPipeline with texts of 16 tokens."""

    @functools.wraps(diffusers.WanPipeline.__call__)
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **{"max_sequence_length": TEXT_TOKENS, **kwargs})


#: what serves a family here, where that is not the class that its folder names
CLASSES: dict[str, type] = {"flux": ShortFlux, "wan": ShortWan}
#: two sizes a family, in pixels: latents of 8 and 12 a side for the UNets
SIZES = {
    "stable_diffusion": (16, 24),
    "stable_diffusion_xl": (16, 24),
    "flux": (16, 24),
    "stable_diffusion_3": (16, 24),
    "wan": (32, 48),
}
#: of a denoiser, in place of those of the random pipelines
LARGER: dict[str, dict[str, Any]] = {
    # 0.99 million parameters; one with twice as many gains a third less by batching on a CPU
    "stable_diffusion": {"block_out_channels": (32, 64), "attention_head_dim": 8, "sample_size": 8},
    "stable_diffusion_xl": {"block_out_channels": (48, 96), "attention_head_dim": 8, "sample_size": 8},
    "flux": {"num_layers": 2, "num_single_layers": 2, "num_attention_heads": 4},
    "wan": {"num_layers": 2},
}


def build(family: str) -> Any:
    """A pipeline of the family with a denoiser of some hundred thousand parameters."""
    pipeline = getattr(testing_pipelines, family)()
    torch.manual_seed(1)
    name = "unet" if pipeline.components.get("unet") is not None else "transformer"
    if family in LARGER:
        old = getattr(pipeline, name)
        pipeline.register_modules(**{name: type(old).from_config({**old.config, **LARGER[family]}).eval()})
    return pipeline

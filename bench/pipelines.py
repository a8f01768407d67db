"""Random pipelines large enough that a forward costs milliseconds and small enough that batching helps a CPU."""

from __future__ import annotations

from typing import Any

import diffusers
import torch

from engine import testing_pipelines

#: two sizes a family, in pixels: latents of 8 and 12 a side for the UNets
SIZES = {"stable_diffusion": (16, 24), "flux": (16, 24), "stable_diffusion_3": (16, 24)}


def build(family: str) -> Any:
    """A pipeline of the family with a denoiser of about a million parameters."""
    pipeline = getattr(testing_pipelines, family)()
    torch.manual_seed(1)
    if family == "stable_diffusion":
        old = pipeline.unet.config
        wider = {"block_out_channels": (48, 96), "attention_head_dim": 8, "sample_size": 8}
        pipeline.register_modules(unet=diffusers.UNet2DConditionModel.from_config({**old, **wider}).eval())
    elif family == "flux":
        old = pipeline.transformer.config
        deeper = {"num_layers": 2, "num_single_layers": 4, "num_attention_heads": 4}
        pipeline.register_modules(transformer=diffusers.FluxTransformer2DModel.from_config({**old, **deeper}).eval())
    return pipeline

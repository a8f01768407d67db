"""Pipelines with the layer shapes of SDXL and FLUX and random weights: their cost without their downloads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import diffusers
import torch

from engine import testing_pipelines


@dataclass(frozen=True, slots=True)
class Shape:
    """`size` in pixels on a device, `small_size` for a trial on a CPU with the small pipelines of the tests."""

    small: str
    size: int = 1024
    small_size: int = 16


SHAPES = {"SDXL": Shape("stable_diffusion_xl"), "FLUX": Shape("flux")}


def build(shape: str, *, small: bool) -> Any:
    """The small pipeline of the tests; unless `small`, with a denoiser and a VAE of the real one's layers.

    The text encoders stay small, so that cross-attention has their width; they run once a request.
    """
    pipeline = getattr(testing_pipelines, SHAPES[shape].small)()
    if small:
        return pipeline
    torch.manual_seed(0)
    if shape == "SDXL":
        old = pipeline.unet.config
        layers = {
            "sample_size": 128,
            "block_out_channels": (320, 640, 1280),
            "layers_per_block": 2,
            "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            "transformer_layers_per_block": (1, 2, 10),
            "attention_head_dim": (5, 10, 20),
            "norm_num_groups": 32,
        }
        pipeline.register_modules(unet=_random(diffusers.UNet2DConditionModel, {**old, **layers}), vae=_vae(4))
    else:
        old = pipeline.transformer.config
        layers = {
            "in_channels": 64,
            "num_layers": 19,
            "num_single_layers": 38,
            "attention_head_dim": 128,
            "num_attention_heads": 24,
            "axes_dims_rope": (16, 56, 56),
        }
        pipeline.register_modules(
            transformer=_random(diffusers.FluxTransformer2DModel, {**old, **layers}), vae=_vae(16)
        )
    return type(pipeline)(**pipeline.components)  # reads the VAE's factor anew


def _vae(latent_channels: int) -> Any:
    return _random(
        diffusers.AutoencoderKL,
        {
            "block_out_channels": (128, 256, 512, 512),
            "down_block_types": ("DownEncoderBlock2D",) * 4,
            "up_block_types": ("UpDecoderBlock2D",) * 4,
            "layers_per_block": 2,
            "latent_channels": latent_channels,
            "sample_size": 1024,
            "shift_factor": 0.0,
        },
    )


def _random(kind: Any, config: dict[str, Any]) -> Any:
    """Made in bfloat16, which halves the memory of a model of billions."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        return kind.from_config(config).eval()
    finally:
        torch.set_default_dtype(before)

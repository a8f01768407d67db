"""The sizes of a pipeline's pictures: what must divide them, and what it was made for."""

import math
from typing import Any

FALLBACK_SIZE = 512
#: checked by every pipeline over a UNet, whatever its VAE
UNET_SIZE_MULTIPLE = 8
#: checked by the pipeline's own code, whatever its VAE
CHECKED_MULTIPLES = {
    "LTXImageToVideoPipeline": 32,
    "LTXPipeline": 32,
    "PixArtAlphaPipeline": 8,
    "PixArtSigmaPipeline": 8,
    "SanaPipeline": 32,
    "WanImageToVideoPipeline": 16,
}
VAE_FACTORS = ("vae_scale_factor", "vae_scale_factor_spatial", "vae_spatial_compression_ratio")


def size_multiple(pipeline: Any) -> int:
    """What a side must be a multiple of: the VAE's factor times whatever patches the denoiser makes of it."""
    factor = _vae_factor(pipeline)
    transformer = pipeline.components.get("transformer")
    patch = 1 if transformer is None else transformer.config.get("patch_size") or 1
    patch = patch if isinstance(patch, int) else max(patch)
    processor = vars(pipeline).get("image_processor")
    packed = factor if processor is None else int(processor.config.vae_scale_factor)
    needed = max(packed, factor * patch)
    checked = CHECKED_MULTIPLES.get(type(pipeline).__name__, 1)
    return math.lcm(needed, checked if pipeline.components.get("unet") is None else UNET_SIZE_MULTIPLE)


def default_size(pipeline: Any, declared: tuple[Any, Any]) -> tuple[int, int]:
    """(height, width) in pixels that the model was made for; `declared` are the defaults of the pipeline's call."""
    factor = _vae_factor(pipeline)
    unet, transformer = pipeline.components.get("unet"), pipeline.components.get("transformer")
    sample = unet.config.sample_size if unet is not None else vars(pipeline).get("default_sample_size")
    if sample is None and transformer is not None:
        sample = transformer.config.get("sample_size")
    if sample is not None:
        height, width = (sample, sample) if isinstance(sample, int) else sample
        return height * factor, width * factor
    height, width = (side if isinstance(side, int) else FALLBACK_SIZE for side in declared)
    return height, width


def _vae_factor(pipeline: Any) -> int:
    attributes = vars(pipeline)
    return int(next((attributes[name] for name in VAE_FACTORS if name in attributes), 8))

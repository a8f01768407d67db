"""What requests should have in common to share a rank, read from the request alone. Pure.

A hint: the rank's own model decides what shares a forward or a batch, so that a wrong guess here costs time and nothing
else. A default that is said aloud makes such a wrong guess.
"""

from typing import Literal

from ..batch_key import BatchKey
from ..request import DiffusionRequest


def affinity(request: DiffusionRequest, mode: Literal["request", "step"]) -> BatchKey:
    """In step mode only what shows in a forward of the denoiser counts; the rest is the same for all there."""
    params, steps = request.params, mode == "step"
    return BatchKey(
        task="text2image" if request.image is None or steps else ("inpaint" if request.mask_image else "image2image"),
        height=params.height,
        width=params.width,
        num_inference_steps=1 if steps else params.num_inference_steps,
        guidance_scale=float(params.guidance_scale > 1.0) if steps else params.guidance_scale,
        has_negative=not steps and params.negative_prompt is not None,
        strength=None if steps else params.strength,
        noise_scheduler=None if steps else params.noise_scheduler,
        num_frames=params.num_frames,
        fps=None if steps else params.fps,
        duration_s=params.duration_s,
        image_size=None if request.image is None else request.image.size,
        loras=params.loras,
    )

"""A request meets its model: defaults filled in, seed drawn, limits of the model checked. Pure but for the seed."""

from __future__ import annotations

import math
import secrets
from typing import Any

from tasks.errors import InvalidRequest
from tasks.models import FORMATS, Models, ModelSpec
from tasks.request import GenerationRequest


def resolve(request: GenerationRequest, models: Models) -> GenerationRequest:
    """The request with every default and the seed in place. Raises `InvalidRequest` naming the field."""
    spec = models.default if request.model is None else models.get(request.model)
    if spec is None:
        raise InvalidRequest("model", f"unknown model {request.model!r}; this system serves {', '.join(models.names)}")
    resolved = request.model_copy(update=_filled(request, spec))
    _check_size(resolved, spec)
    _check_inputs(resolved, spec)
    _check_modality(resolved, spec)
    return resolved


def _filled(request: GenerationRequest, spec: ModelSpec) -> dict[str, Any]:
    defaults = spec.defaults
    filled: dict[str, Any] = {
        "model": spec.name,
        "height": request.height or defaults.height,
        "width": request.width or defaults.width,
        "num_inference_steps": request.num_inference_steps or defaults.num_inference_steps,
        "output_format": request.output_format or defaults.output_format or FORMATS[spec.modality][0],
    }
    if request.guidance_scale is None:
        filled["guidance_scale"] = defaults.guidance_scale
    if request.negative_prompt is None:
        filled["negative_prompt"] = defaults.negative_prompt
    if request.seed is None:
        filled["seed"] = secrets.randbits(48)  # exact in a JavaScript number, and leaves room for seed + k
    if request.image is not None and request.strength is None and request.mask_image is None:
        filled["strength"] = defaults.strength
    if spec.modality != "image":
        filled |= {
            name: getattr(request, name) or getattr(defaults, name) for name in ("num_frames", "fps", "duration_s")
        }
    return filled


def _check_size(request: GenerationRequest, spec: ModelSpec) -> None:
    limits = spec.limits
    for field, size in (("height", request.height), ("width", request.width)):
        assert size is not None
        if not limits.min_size <= size <= limits.max_size:
            raise InvalidRequest(
                field, f"{size} is outside {limits.min_size} to {limits.max_size} of model {spec.name}"
            )
        if size % limits.size_multiple:
            raise InvalidRequest(field, f"{size} is not a multiple of {limits.size_multiple}")
    assert request.height and request.width and request.num_inference_steps
    if request.num_inference_steps > limits.max_steps:
        raise InvalidRequest("num_inference_steps", f"{request.num_inference_steps} is above {limits.max_steps}")
    if request.num_outputs > limits.max_outputs:
        raise InvalidRequest("num_outputs", f"{request.num_outputs} is above {limits.max_outputs} of model {spec.name}")
    pixels = request.height * request.width * request.num_outputs * (request.num_frames or 1)
    if pixels > limits.max_pixels:
        raise InvalidRequest(
            "num_outputs", f"{pixels} pixels in all are above {limits.max_pixels} of model {spec.name}"
        )


def _check_inputs(request: GenerationRequest, spec: ModelSpec) -> None:
    if request.image is not None and not spec.image_input:
        raise InvalidRequest("image", f"model {spec.name} takes no image")
    if request.mask_image is not None and not spec.mask_input:
        raise InvalidRequest("mask_image", f"model {spec.name} cannot inpaint")
    if request.strength is not None:
        assert request.num_inference_steps
        if int(request.strength * request.num_inference_steps) < 1:
            raise InvalidRequest(
                "strength",
                f"{request.strength} of {request.num_inference_steps} steps leaves no step to run; "
                f"use at least {math.ceil(1000 / request.num_inference_steps) / 1000:g}",
            )
    if request.noise_scheduler is not None and request.noise_scheduler not in spec.noise_schedulers:
        known = ", ".join(spec.noise_schedulers) or "only its own"
        raise InvalidRequest(
            "noise_scheduler", f"{request.noise_scheduler!r} is unknown to model {spec.name}; it has {known}"
        )
    if len(request.loras) > spec.max_loras:
        raise InvalidRequest("loras", f"has {len(request.loras)} entries; model {spec.name} takes {spec.max_loras}")
    for index, lora in enumerate(request.loras):
        if lora.name not in spec.loras:
            known = ", ".join(spec.loras) or "none"
            raise InvalidRequest(
                f"loras.{index}.name", f"{lora.name!r} is unknown to model {spec.name}; it has {known}"
            )


def _check_modality(request: GenerationRequest, spec: ModelSpec) -> None:
    if request.output_format not in FORMATS[spec.modality]:
        formats = ", ".join(FORMATS[spec.modality])
        raise InvalidRequest("output_format", f"{request.output_format} is not for {spec.modality}; use {formats}")
    if spec.modality == "image":
        for field in ("num_frames", "fps", "duration_s"):
            if getattr(request, field) is not None:
                raise InvalidRequest(field, f"model {spec.name} makes still images")
    if request.num_frames is not None and request.num_frames > spec.limits.max_frames:
        raise InvalidRequest("num_frames", f"{request.num_frames} is above {spec.limits.max_frames}")
    if request.duration_s is not None and request.duration_s > spec.limits.max_duration_s:
        raise InvalidRequest("duration_s", f"{request.duration_s} is above {spec.limits.max_duration_s}")

"""A request meets its model: defaults filled in, seed drawn, limits of the model checked. Pure but for the seed."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from typing import Any

from tasks.errors import InvalidRequest
from tasks.models import FORMATS, Models, ModelSpec
from tasks.request import GenerationRequest


def resolve(request: GenerationRequest, models: Models) -> GenerationRequest:
    """The request with every default and the seed in place. Raises `InvalidRequest` naming the first wrong field."""
    spec = _spec(request, models)
    resolved = request.model_copy(update=_filled(request, spec))
    for fault in _faults(resolved, spec):
        raise fault
    return resolved


def faults_of(request: GenerationRequest, models: Models) -> list[InvalidRequest]:
    """Everything that the model cannot do of a request; none: `resolve` takes it."""
    try:
        spec = _spec(request, models)
    except InvalidRequest as fault:
        return [fault]
    return list(_faults(request.model_copy(update=_filled(request, spec)), spec))


def _spec(request: GenerationRequest, models: Models) -> ModelSpec:
    spec = models.default if request.model is None else models.get(request.model)
    if spec is None:
        raise InvalidRequest("model", f"unknown model {request.model!r}; this system serves {', '.join(models.names)}")
    return spec


def _faults(resolved: GenerationRequest, spec: ModelSpec) -> Iterator[InvalidRequest]:
    yield from _size_faults(resolved, spec)
    yield from _input_faults(resolved, spec)
    yield from _modality_faults(resolved, spec)


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


def _size_faults(request: GenerationRequest, spec: ModelSpec) -> Iterator[InvalidRequest]:
    limits = spec.limits
    assert request.height and request.width and request.num_inference_steps
    sides = [*_side_faults("height", request.height, spec), *_side_faults("width", request.width, spec)]
    yield from sides
    if request.num_inference_steps > limits.max_steps:
        yield InvalidRequest("num_inference_steps", f"{request.num_inference_steps} is above {limits.max_steps}")
    if request.num_outputs > limits.max_outputs:
        yield InvalidRequest("num_outputs", f"{request.num_outputs} is above {limits.max_outputs} of model {spec.name}")
    pixels = request.height * request.width * request.num_outputs * (request.num_frames or 1)
    if pixels > limits.max_pixels and not sides:
        yield InvalidRequest(
            "num_outputs", f"{pixels} pixels in all are above {limits.max_pixels} of model {spec.name}"
        )


def _side_faults(field: str, size: int, spec: ModelSpec) -> Iterator[InvalidRequest]:
    limits = spec.limits
    if not limits.min_size <= size <= limits.max_size:
        yield InvalidRequest(field, f"{size} is outside {limits.min_size} to {limits.max_size} of model {spec.name}")
    elif size % limits.size_multiple:
        yield InvalidRequest(field, f"{size} is not a multiple of {limits.size_multiple}")


def _input_faults(request: GenerationRequest, spec: ModelSpec) -> Iterator[InvalidRequest]:
    if request.image is not None and not spec.image_input:
        yield InvalidRequest("image", f"model {spec.name} takes no image")
    if request.mask_image is not None and not spec.mask_input:
        yield InvalidRequest("mask_image", f"model {spec.name} cannot inpaint")
    if request.strength is not None:
        yield from _strength_faults(request, request.strength, spec)
    if request.noise_scheduler is not None and request.noise_scheduler not in spec.noise_schedulers:
        known = ", ".join(spec.noise_schedulers) or "only its own"
        yield InvalidRequest(
            "noise_scheduler", f"{request.noise_scheduler!r} is unknown to model {spec.name}; it has {known}"
        )
    if len(request.loras) > spec.max_loras:
        yield InvalidRequest("loras", f"has {len(request.loras)} entries; model {spec.name} takes {spec.max_loras}")
    for index, lora in enumerate(request.loras):
        if lora.name not in spec.loras:
            known = ", ".join(spec.loras) or "none"
            yield InvalidRequest(
                f"loras.{index}.name", f"{lora.name!r} is unknown to model {spec.name}; it has {known}"
            )


def _strength_faults(request: GenerationRequest, strength: float, spec: ModelSpec) -> Iterator[InvalidRequest]:
    """Whoever gave no strength does not know that it is too low: then the steps are too few."""
    num_steps = request.num_inference_steps
    assert num_steps
    if int(strength * num_steps) >= 1:
        return
    if strength == spec.defaults.strength:
        least = math.ceil(1 / strength)
        least += int(strength * least) < 1  # 1 / strength was rounded
        words = f"{num_steps} at strength {strength:g}, which is the default of model {spec.name}"
        yield InvalidRequest("num_inference_steps", f"{words}, leaves no step to run; use at least {least}")
    else:
        least_strength = math.ceil(1000 / num_steps) / 1000
        message = f"{strength} of {num_steps} steps leaves no step to run; use at least {least_strength:g}"
        yield InvalidRequest("strength", message)


def _modality_faults(request: GenerationRequest, spec: ModelSpec) -> Iterator[InvalidRequest]:
    if request.output_format not in FORMATS[spec.modality]:
        formats = ", ".join(FORMATS[spec.modality])
        yield InvalidRequest("output_format", f"{request.output_format} is not for {spec.modality}; use {formats}")
    if spec.modality == "image":
        for field in ("num_frames", "fps", "duration_s"):
            if getattr(request, field) is not None:
                yield InvalidRequest(field, f"model {spec.name} makes still images")
    if request.num_frames is not None and request.num_frames > spec.limits.max_frames:
        yield InvalidRequest("num_frames", f"{request.num_frames} is above {spec.limits.max_frames}")
    if request.duration_s is not None and request.duration_s > spec.limits.max_duration_s:
        yield InvalidRequest("duration_s", f"{request.duration_s} is above {spec.limits.max_duration_s}")

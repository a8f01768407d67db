"""From OpenAI's fields to a request of ours: what each means here. Pure; the job's own fields are judged by `body`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from api_stub.body import faults
from api_stub.openai.errors import OpenAIError, wrong_field
from api_stub.problems import wrong_fields
from tasks.errors import InvalidRequest
from tasks.models import Modality, Models, ModelSpec
from tasks.request import GenerationRequest
from tasks.settings import Settings

Fields = TypeVar("Fields", bound=BaseModel)
_ROUTES = {"image": "/v1/images/generations", "video": "/v1/videos", "audio": "/v1/jobs"}
#: The engine's own, for a model that names no rate.
_FALLBACK_FPS = 16.0


def given(data: Mapping[str, Any], *, is_form: bool) -> dict[str, Any]:
    """Without what was left open: null in JSON, and in a form, which has no null, an empty text."""
    return {name: value for name, value in data.items() if value is not None and not (is_form and value == "")}


def parse(kind: type[Fields], data: Mapping[str, Any]) -> Fields:
    """Raises a 400 that names the wrong field of OpenAI's own."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        wrong = wrong_fields(error)
        raise wrong_field(wrong[0], len(wrong)) from None


def model_for(name: str | None, modality: Modality, models: Models) -> ModelSpec:
    """The named model, or the first of that modality. Names of OpenAI's models mean nothing unless they are served."""
    fitting = [spec for spec in models if spec.modality == modality]
    if name is None and fitting:
        return fitting[0]
    spec = models.get(name or "")
    if spec is None:
        served = ", ".join(spec.name for spec in fitting) or "none"
        what = f"The model '{name}' does not exist here" if name else f"No model here makes a {modality}"
        raise OpenAIError(404, "model_not_found", f"{what}; models for this route: {served}", param="model")
    if spec.modality != modality:
        where = _ROUTES[spec.modality]
        raise OpenAIError(400, "invalid_value", f"model: {name} makes {spec.modality}; use {where}", param="model")
    return spec


def sides(size: str | None) -> dict[str, int]:
    """`width` and `height` of `WxH`; nothing for `auto`."""
    if size in (None, "auto"):
        return {}
    width, _, height = str(size).partition("x")
    return {"width": int(width), "height": int(height)}


def size_like(width: int, height: int, spec: ModelSpec) -> dict[str, int]:
    """The shape of a given picture at the size that the model draws best, within its limits."""
    limits, defaults = spec.limits, spec.defaults
    scale = math.sqrt(defaults.width * defaults.height / (width * height))
    step = limits.size_multiple
    lowest, highest = math.ceil(limits.min_size / step) * step, limits.max_size // step * step

    def fitted(side: int) -> int:
        return min(max(round(side * scale / step) * step, lowest), highest)

    return {"width": fitted(width), "height": fitted(height)}


def frames(seconds: float, fields: Mapping[str, Any], spec: ModelSpec) -> dict[str, Any]:
    """`num_frames` and `fps` of a wish in seconds: one picture to begin with, then `fps` a second, as models count."""
    if "num_frames" in fields or "duration_s" in fields:
        raise OpenAIError(400, "invalid_value", "seconds: give it or num_frames, not both", param="seconds")
    try:
        fps = float(fields.get("fps") or spec.defaults.fps or _FALLBACK_FPS)
        return {"num_frames": max(1, round(seconds * fps) + 1), "fps": fps}
    except (TypeError, ValueError, OverflowError):
        raise OpenAIError(400, "invalid_value", "fps: must be a number", param="fps") from None


def joined(extra: Mapping[str, Any], meant: Mapping[str, Any]) -> dict[str, Any]:
    """Our own fields as they came, and what OpenAI's fields mean. Raises a 400 if both say the same thing."""
    for field in extra:
        if field in meant:
            raise OpenAIError(
                400, "invalid_value", f"{field}: is given twice, in our words and in OpenAI's", param=field
            )
    return {**extra, **meant}


def with_user(fields: dict[str, Any], user: str | None) -> dict[str, Any]:
    """The caller's user, in the job's metadata, where there is none of that name yet."""
    metadata = fields.get("metadata", {})
    if not user or not isinstance(metadata, dict):
        return fields
    return {**fields, "metadata": {"user": user, **metadata}}


def checked(fields: dict[str, Any], models: Models, settings: Settings, names: Mapping[str, str]) -> GenerationRequest:
    """The request. Raises a 400 for its first wrong field, under the name in `names` by which the caller knows it."""
    found = [_renamed(fault, names) for fault in faults(fields, models, settings)]
    if found:
        raise wrong_field(found[0], len(found))
    return GenerationRequest.model_validate(fields)


def _renamed(fault: InvalidRequest, names: Mapping[str, str]) -> InvalidRequest:
    known = names.get(fault.field, fault.field)
    if known == fault.field:
        return fault
    message = f"{fault.field} {fault.message}" if known == "size" else fault.message
    return InvalidRequest(known, message, error_type=fault.error_type)

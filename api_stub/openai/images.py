"""`/v1/images/generations` and `/v1/images/edits`: a job, waited for, in the shape that OpenAI's clients read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from api_stub.backend import Backend, backend_of, spend, tenant_of
from api_stub.body import read_json
from api_stub.jobs import Key
from api_stub.openai import fields as convert
from api_stub.openai import image_answer, uploads
from api_stub.openai.describe import EDIT_BODY, GENERATION_BODY, IMAGE_EVENTS, refusals
from api_stub.openai.errors import JOB_ID_HEADER, OpenAIError
from api_stub.openai.event_response import EventResponse
from api_stub.openai.forms import Form, read_form
from api_stub.openai.schema import IGNORED, ImageFields, ImagesAnswer
from api_stub.openai.waiting import Vigil
from tasks.models import ModelSpec
from tasks.request import GenerationRequest

IGNORED_HEADER = "X-Safelight-Ignored"

router = APIRouter(prefix="/v1/images", tags=["openai"])
Uses = Annotated[Backend, Depends(backend_of)]
_NAMES = {"num_outputs": "n", "mask_image": "mask"}


@dataclass(frozen=True)
class Wish:
    """A call, understood: the job to make and the shape of the answer."""

    request: GenerationRequest
    own: ImageFields
    kind: image_answer.Kind

    @property
    def headers(self) -> dict[str, str]:
        ignored = [name for name in IGNORED if getattr(self.own, name) is not None]
        return {IGNORED_HEADER: ", ".join(ignored)} if ignored else {}


@router.post(
    "/generations",
    response_model=ImagesAnswer,
    openapi_extra=GENERATION_BODY,
    responses=IMAGE_EVENTS | refusals(400, 401, 404, 409, 413, 415, 429, 500, 503, 504),
)
async def generate(request: Request, backend: Uses, key: Key) -> Response:
    """Pictures from a prompt, when they are done. Beside OpenAI's fields it takes those of `POST /v1/jobs`."""
    data = await read_json(request, backend.settings.max_body_bytes)
    if not isinstance(data, dict):
        raise OpenAIError(400, "invalid_body", "the body is a JSON object")
    given = convert.given(data, is_form=False)
    own = convert.parse(ImageFields, given)
    spec = convert.model_for(own.model, "image", backend.models)
    wish = _wish(backend, "image_generation", own, spec, convert.sides(own.size))
    return await _answer(request, backend, wish, key)


@router.post(
    "/edits",
    response_model=ImagesAnswer,
    openapi_extra=EDIT_BODY,
    responses=IMAGE_EVENTS | refusals(400, 401, 404, 409, 413, 415, 429, 500, 503, 504),
)
async def edit(request: Request, backend: Uses, key: Key) -> Response:
    """A picture changed as the prompt says: all of it, or where a mask is transparent."""
    form = await read_form(request, backend.settings.max_body_bytes)
    given = convert.given(form.fields, is_form=True)
    own = convert.parse(ImageFields, given)
    spec = convert.model_for(own.model, "image", backend.models)
    files = _files(form)
    picture = await uploads.look_at(files["image"], "image")
    size = convert.sides(own.size) or convert.size_like(picture.width, picture.height, spec)
    pictures = {"image": picture}
    if "mask" in files:
        pictures["mask_image"] = await uploads.mask_from(files["mask"], picture)
    # Refused, if it must be, before anything is stored; so the addresses come last.
    wish = _wish(backend, "image_edit", own, spec, {**size, **dict.fromkeys(pictures, "data:,")})
    kept = {field: await uploads.keep(backend, found) for field, found in pictures.items()}
    return await _answer(request, backend, replace(wish, request=wish.request.model_copy(update=kept)), key)


def _files(form: Form) -> dict[str, bytes]:
    for name, found in form.files.items():
        if name not in ("image", "mask"):
            raise OpenAIError(400, "unknown_parameter", f"Unknown parameter: '{name}'.", param=name)
        if len(found) > 1:
            message = f"{name}: {len(found)} files were sent; the models here take one"
            raise OpenAIError(400, "invalid_value", message, param=name)
    if "image" not in form.files:
        raise OpenAIError(400, "missing_required_parameter", "image: send it as a file", param="image")
    return {name: found[0] for name, found in form.files.items()}


def _wish(
    backend: Backend, kind: image_answer.Kind, own: ImageFields, spec: ModelSpec, places: Mapping[str, Any]
) -> Wish:
    if own.background == "transparent":
        message = "background: the models here paint opaque pictures; use 'opaque' or 'auto'"
        raise OpenAIError(400, "invalid_value", message, param="background")
    theirs = {"num_outputs": own.n, "output_format": own.output_format}
    meant = {"model": spec.name, **places, **{name: value for name, value in theirs.items() if value is not None}}
    wanted = convert.joined(own.model_extra or {}, meant)
    if own.stream and own.partial_images:
        wanted["preview_every"] = _preview_every(wanted, spec, own.partial_images)
    wanted = convert.with_user(wanted, own.safety_identifier or own.user)
    sized = {"width": "size", "height": "size"} if own.size else {}
    return Wish(convert.checked(wanted, backend.models, backend.settings, _NAMES | sized), own, kind)


def _preview_every(wanted: Mapping[str, Any], spec: ModelSpec, num_partial: int) -> int:
    """Steps between previews, so that as many as were asked for come before the end."""
    try:
        steps = int(wanted.get("num_inference_steps") or spec.defaults.num_inference_steps)
        if "image" in wanted and "mask_image" not in wanted:
            steps = int(steps * float(wanted.get("strength") or spec.defaults.strength))
    except (TypeError, ValueError, OverflowError):
        return 1  # the wrong field is named by the check that follows
    return max(1, min(1_000, steps // (num_partial + 1)))


async def _answer(request: Request, backend: Backend, wish: Wish, key: str | None) -> Response:
    await spend(request)
    created = await backend.client.create(wish.request, idempotency_key=key, tenant=tenant_of(request))
    vigil = Vigil(request, backend, created.job, key)
    headers = {JOB_ID_HEADER: created.job.id, **wish.headers}
    if wish.own.stream:
        frames = image_answer.stream(backend, vigil, wish.kind, wish.own.partial_images or 0, wish.own.response_format)
        return EventResponse(frames, headers)
    answer = await image_answer.whole(backend, await vigil.ended(), wish.own.response_format)
    return JSONResponse(answer, headers=headers)

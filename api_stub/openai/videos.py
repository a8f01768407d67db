"""`/v1/videos`: jobs of video models that were made here, as OpenAI's video objects."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from api_stub.backend import Backend, backend_of, spend, tenant_of
from api_stub.jobs import LINK_S, Key
from api_stub.openai import fields as convert
from api_stub.openai import uploads
from api_stub.openai.describe import CONTENT, VIDEO_BODY, refusals
from api_stub.openai.errors import JOB_ID_HEADER, NO_RETRY, OpenAIError
from api_stub.openai.forms import Form, is_multipart, read_form_or_json
from api_stub.openai.schema import Video, VideoDeleted, VideoFields, VideoList
from api_stub.openai.video_object import poll_after_ms, video_of
from tasks.artifacts import parse_uri
from tasks.errors import UnknownJob
from tasks.ids import is_job_id
from tasks.job import Job
from tasks.models import ModelSpec

router = APIRouter(prefix="/v1/videos", tags=["openai"])
Uses = Annotated[Backend, Depends(backend_of)]


def _answer(backend: Backend, job: Job) -> Response:
    headers = {JOB_ID_HEADER: job.id, "OpenAI-Poll-After-Ms": str(poll_after_ms(job))}
    return JSONResponse(video_of(job, backend.settings.result_ttl_s).model_dump(), headers=headers)


async def _made_here(video_id: str, backend: Uses) -> Job:
    """The job, if it was made through this route and not deleted."""
    if is_job_id(video_id) and await backend.videos.has(video_id):
        try:
            return await backend.client.get(video_id)
        except UnknownJob:
            await backend.videos.forget([video_id])
    raise OpenAIError(
        404, "not_found", f"Video '{video_id[:80]}' does not exist here, or not any more", param="video_id"
    )


Made = Annotated[Job, Depends(_made_here)]


@router.post(
    "",
    response_model=Video,
    openapi_extra=VIDEO_BODY,
    responses=refusals(400, 401, 404, 409, 413, 415, 429, 503),
)
async def create(request: Request, backend: Uses, key: Key) -> Response:
    """Begin a video. Beside OpenAI's fields it takes those of `POST /v1/jobs`."""
    form = await read_form_or_json(request, backend.settings.max_body_bytes)
    own = convert.parse(VideoFields, convert.given(form.fields, is_form=is_multipart(request)))
    spec = convert.model_for(own.model, "video", backend.models)
    places = convert.sides(own.size)
    picture = await _reference_file(form)
    if picture is not None:
        places = places or convert.size_like(picture.width, picture.height, spec)
    reference = _reference_uri(own) if picture is None else "data:,"
    wanted = _wanted(own, spec, {**places, **({} if reference is None else {"image": reference})})
    checked = convert.checked(wanted, backend.models, backend.settings, _names(own))
    if picture is not None:
        checked = checked.model_copy(update={"image": await uploads.keep(backend, picture)})
    await spend(request)
    created = await backend.client.create(checked, idempotency_key=key, tenant=tenant_of(request))
    await backend.videos.add(created.job)
    return _answer(backend, created.job)


async def _reference_file(form: Form) -> uploads.Picture | None:
    for name, found in form.files.items():
        if name != "input_reference":
            raise OpenAIError(400, "unknown_parameter", f"Unknown parameter: '{name}'.", param=name)
        if len(found) > 1:
            raise OpenAIError(400, "invalid_value", f"{name}: {len(found)} files were sent; one is taken", param=name)
    files = form.files.get("input_reference")
    return await uploads.look_at(files[0], "input_reference") if files else None


def _reference_uri(own: VideoFields) -> str | None:
    reference = own.input_reference
    if not isinstance(reference, dict):
        return reference
    uri = reference.get("image_url")
    if set(reference) != {"image_url"} or not isinstance(uri, str):
        message = "input_reference: send a file, or {image_url: URI}; no files are kept here by an id"
        raise OpenAIError(400, "invalid_value", message, param="input_reference")
    return uri


def _wanted(own: VideoFields, spec: ModelSpec, places: dict[str, Any]) -> dict[str, Any]:
    extra = dict(own.model_extra or {})
    if extra.pop("num_outputs", 1) not in (1, "1") or extra.pop("n", 1) not in (1, "1"):
        raise OpenAIError(400, "invalid_value", "n: a call makes one video", param="n")
    meant: dict[str, Any] = {"model": spec.name, **places}
    if own.seconds is not None:
        meant |= convert.frames(own.seconds, extra, spec)
        extra.pop("fps", None)
    return convert.with_user(convert.joined(extra, meant), own.user)


def _names(own: VideoFields) -> dict[str, str]:
    sized = {"width": "size", "height": "size"} if own.size else {}
    timed = {"num_frames": "seconds", "fps": "seconds"} if own.seconds is not None else {}
    return {"image": "input_reference", **sized, **timed}


@router.get("", response_model=VideoList, responses=refusals(400, 401, 503))
async def list_videos(
    backend: Uses,
    after: Annotated[str | None, Query(max_length=64, description="The last id of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
) -> Response:
    """Videos that were made here and not deleted, by time of creation."""
    found = await backend.videos.page(after, limit + 1, order)
    if found is None:
        raise OpenAIError(400, "invalid_value", "after: is not the id of a video here", param="after")
    jobs = [job for job in await asyncio.gather(*(_job(backend, job_id) for job_id in found[:limit])) if job]
    await backend.videos.forget(list({*found[:limit]} - {job.id for job in jobs}))
    data = [video_of(job, backend.settings.result_ttl_s) for job in jobs]
    first, last = (data[0].id, data[-1].id) if data else (None, None)
    page = VideoList(data=data, first_id=first, last_id=last, has_more=len(found) > limit)
    return JSONResponse(page.model_dump())


async def _job(backend: Backend, job_id: str) -> Job | None:
    try:
        return await backend.client.get(job_id)
    except UnknownJob:  # its record has expired
        return None


@router.get("/{video_id}", response_model=Video, responses=refusals(401, 404, 503))
async def get(job: Made, backend: Uses) -> Response:
    """The video as it is now."""
    return _answer(backend, job)


@router.delete("/{video_id}", response_model=VideoDeleted, responses=refusals(401, 404, 503))
async def delete(job: Made, backend: Uses) -> Response:
    """Abort it if it is not done, remove its file, take it off the list. The job's record stays until it expires."""
    job = job if job.status.is_terminal else await backend.client.abort(job.id)
    keys = [parse_uri(output.uri)[1] for output in job.outputs]
    await asyncio.to_thread(backend.artifacts.delete, keys)
    await backend.videos.forget([job.id])
    return JSONResponse(VideoDeleted(id=job.id).model_dump(), headers={JOB_ID_HEADER: job.id})


@router.get(
    "/{video_id}/content",
    status_code=307,
    response_class=RedirectResponse,
    responses=CONTENT | refusals(400, 401, 404, 503),
)
async def content(job: Made, backend: Uses, variant: str = "video") -> Response:
    """Where the file is: a presigned URL, good for an hour."""
    if variant != "video":
        raise OpenAIError(
            400, "invalid_value", f"variant: {variant[:40]} is not made here; only video", param="variant"
        )
    if not job.outputs:
        status = video_of(job, 0).status
        raise OpenAIError(404, "video_not_ready", f"Video '{job.id}' has no content; it is {status}", headers=NO_RETRY)
    url = backend.artifacts.presign(job.outputs[0].uri, LINK_S)
    return RedirectResponse(url, 307, headers={JOB_ID_HEADER: job.id, "Cache-Control": "private, no-store"})

"""Routes of jobs: each checks its input, makes one call of the client and shapes the answer."""

from __future__ import annotations

import re
import threading
import time
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse, StreamingResponse

from api_stub import events as sse
from api_stub.backend import Backend, backend_of, spend, tenant_of
from api_stub.body import MAX_BATCH, many_requests, one_request, read_json
from api_stub.brief import brief as without_bytes
from api_stub.openapi import BATCH_BODY, EVENT_STREAM, ONE_BODY, JobBatch, JobPage, OutputLinks, answer, problems
from api_stub.problems import ProblemError
from tasks.errors import InvalidRequest, UnknownJob, WaitTimeout
from tasks.explain import Explanation
from tasks.ids import is_job_id
from tasks.job import Job, JobStatus, Output

MAX_WAIT_S = 60.0
MAX_PAGE = 200
LINK_S = 3_600

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Uses = Annotated[Backend, Depends(backend_of)]


def _job_id(job_id: str) -> str:
    if not is_job_id(job_id):
        raise UnknownJob(job_id)
    return job_id


def _key(idempotency_key: Annotated[str | None, Header()] = None) -> str | None:
    if idempotency_key is not None and not re.fullmatch(r"[\x20-\x7e]{1,255}", idempotency_key):
        raise InvalidRequest("Idempotency-Key", "is 1 to 255 printable ASCII characters")
    return idempotency_key


JobId = Annotated[str, Depends(_job_id)]
Key = Annotated[str | None, Depends(_key)]


def _accepted(request: Request, job: Job, status: int = 202) -> Response:
    location = f"{request.scope.get('root_path', '')}/v1/jobs/{job.id}"
    return JSONResponse(job.to_json(), status, headers={"Location": location})


@router.post(
    "",
    status_code=202,
    response_model=Job,
    openapi_extra=ONE_BODY,
    responses=answer(200, "This key and body came before: the same job.", Job)
    | problems(400, 408, 409, 413, 415, 422, 429, 503),
)
async def submit(request: Request, backend: Uses, key: Key) -> Response:
    """Accept a job. With `Idempotency-Key`, sending it again is safe."""
    data = await read_json(request, backend.settings.max_body_bytes)
    wanted = one_request(data, backend.models, backend.settings)
    await spend(request)
    created = await backend.client.create(wanted, idempotency_key=key, tenant=tenant_of(request))
    return _accepted(request, created.job, 202 if created.is_new else 200)


@router.post(
    "/batch",
    status_code=202,
    response_model=JobBatch,
    openapi_extra=BATCH_BODY,
    responses=problems(400, 408, 413, 415, 422, 429, 503),
    description=f"Accept up to {MAX_BATCH} jobs. All are checked first: one wrong field, and none is created.",
)
async def submit_batch(request: Request, backend: Uses) -> Response:
    data = await read_json(request, backend.settings.max_body_bytes)
    wanted = many_requests(data, backend.models, backend.settings)
    await spend(request, len(wanted))
    jobs = await backend.client.submit_many(wanted, tenant=tenant_of(request))
    return JSONResponse({"jobs": [job.to_json() for job in jobs]}, 202)


@router.get("", response_model=JobPage, responses=problems(422, 503))
async def list_jobs(
    backend: Uses,
    status: JobStatus | None = None,
    group: Annotated[str | None, Query(min_length=1, max_length=128)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    cursor: Annotated[str | None, Query(pattern="^[0-9]{1,18}$", description="From the page before.")] = None,
    brief: Annotated[bool, Query(description="Leave out the bytes of `data:` URIs.")] = False,
) -> Response:
    """Jobs, newest first."""
    page = await backend.client.store.list(status=status, group=group, limit=limit, cursor=cursor)
    shown = [without_bytes(job) if brief else job.to_json() for job in page.jobs]
    return JSONResponse({"jobs": shown, "cursor": page.cursor})


@router.get("/{job_id}", response_model=Job, responses=problems(404, 422, 503))
async def get_job(
    request: Request,
    job_id: JobId,
    backend: Uses,
    wait: Annotated[
        float, Query(ge=0, allow_inf_nan=False, description=f"Seconds to wait for the end; {MAX_WAIT_S:.0f} at most.")
    ] = 0.0,
) -> Response:
    """The job as it is now, or as soon as it has ended."""
    deadline = time.monotonic() + min(wait, MAX_WAIT_S)
    job = await backend.client.get(job_id)
    while not job.status.is_terminal and (left_s := deadline - time.monotonic()) > 0 and not _is_closing(request):
        try:
            job = await backend.client.wait(job_id, timeout_s=min(left_s, sse.SLICE_S))
        except WaitTimeout:
            job = await backend.client.get(job_id)
    return JSONResponse(job.to_json())


def _is_closing(request: Request) -> bool:
    closing: threading.Event = request.app.state.closing
    return closing.is_set()


@router.post(
    "/{job_id}/abort",
    status_code=202,
    response_model=Job,
    responses=answer(200, "It had ended before; nothing changed.", Job) | problems(404, 503),
)
async def abort(job_id: JobId, backend: Uses) -> Response:
    """Ask for the end of a job. A queued one ends now; a running one answers `abort_requested` and ends at its next
    denoising step."""
    job = await backend.client.get(job_id)
    if job.status.is_terminal:
        return JSONResponse(job.to_json())
    job = await backend.client.abort(job_id)
    is_too_late = job.status in (JobStatus.SUCCEEDED, JobStatus.FAILED)
    return JSONResponse(job.to_json(), 200 if is_too_late else 202)


@router.post("/{job_id}/replay", status_code=202, response_model=Job, responses=problems(404, 422, 429, 503))
async def replay(request: Request, job_id: JobId, backend: Uses) -> Response:
    """A new job of the same resolved request: same seed, same picture."""
    await spend(request)
    return _accepted(request, await backend.client.replay(job_id, tenant=tenant_of(request)))


@router.get("/{job_id}/explain", response_model=Explanation, responses=problems(404, 503))
async def explain(job_id: JobId, backend: Uses) -> Response:
    """Why it waits, what runs meanwhile, with whom it shared the device, what it cost and what was changed in it."""
    explanation = await backend.client.explain(job_id)
    return JSONResponse(explanation.to_json(), headers={"Cache-Control": "no-store"})


@router.get("/{job_id}/events", responses=EVENT_STREAM | problems(404, 422, 503))
async def events(
    request: Request, job_id: JobId, backend: Uses, last_event_id: Annotated[str | None, Header()] = None
) -> Response:
    """`status`, `progress`, `preview` and at last `done`, which carries the whole job."""
    after = sse.resume_point(last_event_id)
    job = await backend.client.get(job_id)
    if job.status.is_terminal and after != sse.START and not await backend.client.store.events(job_id, after=after):
        return Response(status_code=204)  # it has seen `done`; 204 tells an EventSource not to come back
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    frames = sse.stream(backend, job, after, request.app.state.closing)
    return StreamingResponse(frames, media_type="text/event-stream", headers=headers)


@router.get("/{job_id}/outputs", response_model=OutputLinks, responses=problems(404, 503))
async def output_links(job_id: JobId, backend: Uses) -> Response:
    """The outputs, each with a presigned URL to see and one to download; for callers that cannot follow a redirect."""
    job = await backend.client.get(job_id)
    links = [_links(backend, job, index, output) for index, output in enumerate(job.outputs)]
    return JSONResponse({"outputs": links, "expires_s": LINK_S}, headers={"Cache-Control": "no-store"})


def _links(backend: Backend, job: Job, index: int, output: Output) -> dict[str, object]:
    extension = re.sub(r"[^A-Za-z0-9]", "", output.uri.rpartition(".")[2])[:8]
    disposition = f'attachment; filename="safelight-{job.id}-{index}.{extension}"'
    return {
        **output.model_dump(mode="json"),
        "url": backend.artifacts.presign(output.uri, LINK_S),
        "download_url": backend.artifacts.presign(output.uri, LINK_S, disposition),
    }


@router.get(
    "/{job_id}/outputs/{number}",
    status_code=307,
    response_class=RedirectResponse,
    responses=answer(307, "`Location`: a presigned URL, good for an hour.") | problems(404, 422, 503),
)
async def output(job_id: JobId, number: int, backend: Uses) -> Response:
    """Where the output is; `number` counts from 0."""
    job = await backend.client.get(job_id)
    if not 0 <= number < len(job.outputs):
        have = f"it has {len(job.outputs)}" if job.status.is_terminal else f"it is {job.status}"
        raise ProblemError(404, "not_found", f"job {job_id} has no output {number}; {have}")
    url = backend.artifacts.presign(job.outputs[number].uri, LINK_S)
    return RedirectResponse(url, 307, headers={"Cache-Control": f"private, max-age={LINK_S // 6}"})

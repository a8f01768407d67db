"""Routes for whoever looks after the system: dead letters, webhooks that were given up, drains."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from api_stub.backend import Backend, backend_of, tenant_of
from api_stub.openapi import problems
from tasks.dead_letters import MAX_AGE_S, DeadLetter
from tasks.errors import UnknownDeadLetter, UnknownWebhook
from tasks.ids import is_job_id
from tasks.job import ErrorType, Job
from tasks.webhook_queue import WebhookLetter

MAX_PAGE = 200

router = APIRouter(prefix="/v1", tags=["operator"])
Uses = Annotated[Backend, Depends(backend_of)]
Age = Annotated[float | None, Query(ge=0, le=MAX_AGE_S, allow_inf_nan=False, description="Seconds since the job died.")]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


class DeadLetterList(BaseModel):
    #: Newest first, without their faults.
    letters: list[DeadLetter]
    #: For the next call; null: this was the last page.
    cursor: str | None


class WebhookLetterList(BaseModel):
    letters: list[WebhookLetter]


class Draining(BaseModel):
    #: Whole names of the workers that were asked.
    workers: list[str]


def _letter_id(job_id: str) -> str:
    if not is_job_id(job_id):
        raise UnknownDeadLetter(job_id)
    return job_id


def _webhook_id(job_id: str) -> str:
    if not is_job_id(job_id):
        raise UnknownWebhook(job_id)
    return job_id


LetterId = Annotated[str, Depends(_letter_id)]
WebhookId = Annotated[str, Depends(_webhook_id)]


@router.get("/dead-letters", response_model=DeadLetterList, responses=problems(422, 503))
async def dead_letters(
    backend: Uses,
    model: Annotated[str | None, Query(min_length=1, max_length=128)] = None,
    error_type: ErrorType | None = None,
    older_than_s: Age = None,
    newer_than_s: Age = None,
    limit: Limit = 50,
    cursor: Annotated[str | None, Query(max_length=96, description="From the page before.")] = None,
) -> Response:
    """Failed jobs that wait for an operator, newest first. A page may be short while `cursor` leads on."""
    page = await backend.client.dead_letters(
        model=model,
        error_type=error_type,
        older_than_s=older_than_s,
        newer_than_s=newer_than_s,
        limit=limit,
        cursor=cursor,
    )
    return JSONResponse({"letters": [letter.to_json() for letter in page.letters], "cursor": page.cursor})


@router.get("/dead-letters/{job_id}", response_model=DeadLetter, responses=problems(404, 503))
async def dead_letter(
    job_id: LetterId,
    backend: Uses,
    traceback: Annotated[bool, Query(description="With the traceback of each fault.")] = False,
) -> Response:
    """The job and what its last ten failed attempts left: worker, time, error."""
    return JSONResponse((await backend.client.dead_letter(job_id)).to_json(tracebacks=traceback))


@router.post(
    "/dead-letters/{job_id}/retry", status_code=202, response_model=Job, responses=problems(404, 422, 429, 503)
)
async def retry_dead_letter(request: Request, job_id: LetterId, backend: Uses) -> Response:
    """A new job of the same resolved request; its `retry_of` is the letter, which leaves the list."""
    job = await backend.client.retry_dead_letter(job_id, tenant=tenant_of(request))
    location = f"{request.scope.get('root_path', '')}/v1/jobs/{job.id}"
    return JSONResponse(job.to_json(), 202, headers={"Location": location})


@router.delete("/dead-letters/{job_id}", status_code=204, response_class=Response, responses=problems(404, 503))
async def purge_dead_letter(job_id: LetterId, backend: Uses) -> Response:
    """Seen to. The job itself stays as long as any other."""
    if not await backend.client.purge_dead_letters([job_id]):
        raise UnknownDeadLetter(job_id)
    return Response(status_code=204)


@router.get("/webhooks", response_model=WebhookLetterList, responses=problems(422, 503))
async def webhooks(backend: Uses, limit: Limit = 50) -> Response:
    """Webhook deliveries that were given up, newest first; `id` is the job's."""
    letters = await backend.client.webhook_letters(limit)
    return JSONResponse({"letters": [letter.to_json() for letter in letters]})


@router.post("/webhooks/{job_id}/retry", status_code=202, responses=problems(404, 503))
async def retry_webhook(job_id: WebhookId, backend: Uses) -> dict[str, Any]:
    """Deliver it again, now: the same `webhook-id`, a new `webhook-timestamp`."""
    await backend.client.retry_webhook(job_id)
    return {"id": job_id}


@router.delete("/webhooks/{job_id}", status_code=204, response_class=Response, responses=problems(404, 503))
async def purge_webhook(job_id: WebhookId, backend: Uses) -> Response:
    """Seen to: it is never delivered."""
    if not await backend.client.purge_webhooks([job_id]):
        raise UnknownWebhook(job_id)
    return Response(status_code=204)


@router.post("/workers/{name}/drain", status_code=202, response_model=Draining, responses=problems(404, 503))
async def drain(name: str, backend: Uses) -> Response:
    """Ask a worker to finish what fits into its grace, give the rest back and leave.

    `name` is a worker's own, or the part before its process id. Processes that start later are not meant.
    """
    return JSONResponse({"workers": await backend.client.drain(name)}, 202)

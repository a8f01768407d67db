"""Routes of a group of jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse

from api_stub.backend import Backend, backend_of
from api_stub.openapi import AbortedJobs, problems

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Uses = Annotated[Backend, Depends(backend_of)]


@router.post("/abort", status_code=202, response_model=AbortedJobs, responses=problems(422, 503))
async def abort_group(backend: Uses, group: Annotated[str, Query(min_length=1, max_length=128)]) -> Response:
    """Ask for the end of every live job of the group; the ids of those that were asked."""
    return JSONResponse({"aborted": list(await backend.client.abort_group(group))}, 202)

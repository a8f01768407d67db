"""A finished job as OpenAI's clients read it: whole, or as the last events of a stream."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

from api_stub.backend import Backend
from api_stub.events import frame
from api_stub.jobs import LINK_S
from api_stub.openai import errors
from api_stub.openai.errors import JOB_ID_HEADER, NO_RETRY, OpenAIError
from api_stub.openai.schema import ImageDatum, ImagesAnswer, ResponseFormat
from api_stub.openai.waiting import Vigil
from api_stub.problems import as_problem
from tasks.artifacts import DownloadFailed
from tasks.errors import SafelightError, StoreUnavailable
from tasks.job import Job, JobStatus, Output

Kind = Literal["image_generation", "image_edit"]
#: We count no tokens; the events of a stream must have the field.
_NO_USAGE = {
    "input_tokens": 0,
    "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
    "output_tokens": 0,
    "total_tokens": 0,
}


async def whole(backend: Backend, job: Job, response_format: ResponseFormat | None) -> dict[str, Any]:
    """The body of the answer. Raises `OpenAIError` for a job without pictures."""
    if job.status is not JobStatus.SUCCEEDED:
        raise errors.of_job(job)
    headers = {JOB_ID_HEADER: job.id, **NO_RETRY}
    try:
        data = [await _datum(backend, output, response_format) for output in job.outputs]
    except DownloadFailed as error:
        raise OpenAIError(500, "output_missing", f"job {job.id}: {error}", headers=headers) from None
    except StoreUnavailable as error:  # the pictures are made: another try of the client would make others
        message = f"job {job.id} is done, but {error}; GET /v1/jobs/{job.id}/outputs has links to its pictures"
        raise OpenAIError(503, "service_unavailable", message, headers=headers) from None
    request = job.request
    answer = ImagesAnswer(
        created=int(job.created_at.timestamp()),
        data=data,
        output_format=request.output_format or "png",
        size=f"{request.width}x{request.height}",
        warnings=list(job.warnings),
    )
    return answer.model_dump(exclude_none=True)


async def _datum(backend: Backend, output: Output, response_format: ResponseFormat | None) -> ImageDatum:
    artifacts, uri = backend.artifacts, output.uri
    url = None if response_format == "b64_json" else artifacts.presign(uri, LINK_S)
    body = b"" if response_format == "url" else await asyncio.to_thread(artifacts.get, uri, output.size_bytes)
    return ImageDatum(url=url, b64_json=base64.b64encode(body).decode("ascii") or None, seed=output.seed)


async def stream(
    backend: Backend, vigil: Vigil, kind: Kind, num_partial: int, response_format: ResponseFormat | None
) -> AsyncIterator[str]:
    """At most `num_partial` previews, then one `completed` event for each picture; or an error, as the last event."""
    sent = 0
    try:
        async for event in vigil.events():
            if event.type == "preview" and sent < num_partial:
                yield _event(f"{kind}.partial_image", _partial(vigil.job, event.data, sent))
                sent += 1
            elif event.type == "progress":
                yield ": alive\n\n"
        answer = await whole(backend, vigil.job, None if response_format == "url" else "b64_json")
        for datum in answer["data"]:
            facts = _facts(answer["created"], answer["size"], answer["output_format"])
            yield _event(f"{kind}.completed", {**facts, **datum, "usage": _NO_USAGE})
    except OpenAIError as error:
        yield frame("", "error", {"type": "error", **error.body()})
    except SafelightError as error:
        yield frame("", "error", {"type": "error", **errors.translate(as_problem(error)).body()})


def _event(name: str, data: Mapping[str, Any]) -> str:
    return frame("", name, {"type": name, **data})


def _partial(job: Job, preview: Mapping[str, Any], index: int) -> dict[str, Any]:
    facts = _facts(int(job.created_at.timestamp()), f"{preview['width']}x{preview['height']}", "jpeg")
    return {**facts, "partial_image_index": index, "b64_json": str(preview["image"]).partition(",")[2]}


def _facts(created: int, size: str, output_format: str) -> dict[str, Any]:
    return {
        "created_at": created,
        "size": size,
        "quality": "auto",
        "background": "opaque",
        "output_format": output_format,
    }

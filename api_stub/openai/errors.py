"""Errors on OpenAI's routes: `{"error": {message, type, param, code}}`, with the statuses that its clients know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from api_stub.problems import ProblemError
from tasks.errors import InvalidRequest
from tasks.field_words import UNKNOWN
from tasks.job import Job, JobStatus

JOB_ID_HEADER = "X-Safelight-Job-Id"
#: openai's clients obey it; without it they repeat every 409 and 5xx, and each try would be a new job.
NO_RETRY = {"X-Should-Retry": "false"}
_PREFIXES = ("/v1/images", "/v1/videos")
_CODES = {
    "malformed_body": "invalid_body",
    "invalid_request": "invalid_value",
    "invalid_image": "invalid_image_file",
    "unauthorized": "invalid_api_key",
    "unknown_job": "not_found",
    "queue_full": "rate_limit_exceeded",
    "rate_limited": "rate_limit_exceeded",
    "store_full": "service_unavailable",
    "unavailable": "service_unavailable",
    "internal": "internal_error",
}
#: HTTP status of a job's error type; what is missing is 500.
_STATUS_OF_JOB_ERROR = {"invalid_request": 400, "invalid_image": 400, "deadline_exceeded": 504}


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    error: ErrorDetail


class OpenAIError(Exception):
    """Raised by these routes where status, parameter or code are their own."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        kind = "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
        self.detail = ErrorDetail(message=message, type=kind, param=param, code=code)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        return ErrorBody(error=self.detail).model_dump()


def speaks(path: str) -> bool:
    """Whether the caller of this path expects OpenAI's errors; unknown ones below its routes are among them."""
    return any(path == prefix or path.startswith(prefix + "/") for prefix in _PREFIXES)


def translate(error: ProblemError) -> OpenAIError:
    """A problem of ours in OpenAI's words. Its statuses are kept but for 422, which OpenAI calls 400."""
    problem = error.problem
    kind = problem.type.rpartition(":")[2]
    message = problem.detail
    if problem.errors and len(problem.errors) > 1:
        message = "; ".join(f"{one.field}: {one.message}" for one in problem.errors[:5])
    status = 400 if problem.status == 422 else problem.status
    headers = error.headers | (NO_RETRY if status == 409 else {})
    return OpenAIError(status, _CODES.get(kind, kind), message, param=problem.field, headers=headers)


def wrong_field(fault: InvalidRequest, num_faults: int = 1) -> OpenAIError:
    """A 400 for a wrong field, with the code that OpenAI would give it."""
    code = _CODES.get(fault.error_type, "invalid_value")
    if fault.message.startswith(UNKNOWN):
        hint = fault.message.removeprefix(UNKNOWN).removeprefix("; ")
        message = f"Unknown parameter: '{fault.field}'. {hint[:1].upper()}{hint[1:]}".rstrip()
        return OpenAIError(400, "unknown_parameter", message, param=fault.field)
    if fault.message == "Field required":
        code, fault = "missing_required_parameter", InvalidRequest(fault.field, "is missing")
    more = f" (and {num_faults - 1} more)" if num_faults > 1 else ""
    return OpenAIError(400, code, f"{fault.field}: {fault.message}{more}", param=fault.field or None)


def of_job(job: Job) -> OpenAIError:
    """Why a job that ended without pictures did. It is never worth repeating: our own attempts are used up."""
    headers = {JOB_ID_HEADER: job.id, **NO_RETRY}
    if job.status is JobStatus.ABORTED or job.error is None:
        return OpenAIError(409, "job_aborted", f"job {job.id} was aborted", headers=headers)
    field, colon, _ = job.error.message.partition(": ")
    param = field if colon and field in ("image", "mask_image", "prompt", "size") else None
    status = _STATUS_OF_JOB_ERROR.get(job.error.type, 500)
    code = "invalid_image_file" if job.error.type == "invalid_image" else job.error.type
    message = f"job {job.id}: {job.error.message}"
    return OpenAIError(status, code, message, param="mask" if param == "mask_image" else param, headers=headers)


def respond(error: OpenAIError) -> Response:
    # ASCII on purpose: a message may quote a lone surrogate, which UTF-8 cannot carry but JSON can.
    return Response(json.dumps(error.body()), error.status, error.headers, media_type=JSONResponse.media_type)

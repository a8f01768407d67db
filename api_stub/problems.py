"""Every error as RFC 9457 problem JSON. Owns the mapping from our exceptions to HTTP; knows no route."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from tasks.errors import (
    IdempotencyConflict,
    InvalidRequest,
    QueueFull,
    RateLimited,
    SafelightError,
    StoreFull,
    StoreUnavailable,
    UnknownDeadLetter,
    UnknownJob,
    UnknownWebhook,
    UnknownWorker,
)
from tasks.request import in_order, invalid_request

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 100
#: Of every answer that is no file of the page: it is data, for one caller, and no document.
ANSWER_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_RETRY_UNAVAILABLE_S = 2
_TITLES = {
    "malformed_body": "The body cannot be read",
    "invalid_request": "A field is not acceptable",
    "invalid_image": "An input image is not acceptable",
    "unauthorized": "A valid bearer token is needed",
    "not_found": "Nothing is here",
    "unknown_job": "No such job",
    "unknown_dead_letter": "No such dead letter",
    "unknown_webhook": "No such webhook was given up",
    "unknown_worker": "No such worker is up",
    "method_not_allowed": "Not a method of this address",
    "idempotency_conflict": "The key was used with another body",
    "body_too_large": "The body is too large",
    "unsupported_media_type": "Only JSON is read here",
    "queue_full": "The queue is full",
    "store_full": "The memory of the job store is full",
    "rate_limited": "More jobs than this key may send",
    "body_too_slow": "The body comes too slowly",
    "unavailable": "A service behind this one is away",
    "internal": "A fault of ours",
}
_KIND_OF_STATUS = {401: "unauthorized", 404: "not_found", 405: "method_not_allowed"}

log = logging.getLogger(__name__)


class FieldError(BaseModel):
    field: Annotated[str, Field(description="Dotted path of the field, as `loras.0.name`.")]
    message: str


class Problem(BaseModel):
    """RFC 9457, with the wrong field by name."""

    type: Annotated[str, Field(examples=["urn:safelight:problem:invalid_request"])]
    title: Annotated[str, Field(examples=["A field is not acceptable"])]
    status: Annotated[int, Field(examples=[422])]
    detail: Annotated[str, Field(examples=["height: 97 is not a multiple of 8"])]
    field: Annotated[str | None, Field(description="The first wrong field.", examples=["height"])] = None
    errors: Annotated[list[FieldError] | None, Field(description="All the wrong fields.")] = None


class ProblemError(Exception):
    """Raised by a route that knows its answer; `kind` becomes the last part of the problem's type."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        fields: Sequence[InvalidRequest] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.headers = dict(headers or {})
        self.problem = Problem(type=f"urn:safelight:problem:{kind}", title=_TITLES[kind], status=status, detail=detail)
        if fields:
            errors = [FieldError(field=error.field, message=error.message) for error in fields[:MAX_ERRORS]]
            self.problem = self.problem.model_copy(update={"field": errors[0].field or None, "errors": errors})


def wrong(errors: Sequence[InvalidRequest]) -> ProblemError:
    """A 422 for the wrong fields; a field without a name is the body as a whole."""
    first = errors[0]
    return ProblemError(422, first.error_type, str(first) if first.field else first.message, fields=errors)


def as_problem(error: SafelightError) -> ProblemError:
    """The HTTP answer to one of our own exceptions."""
    match error:
        case InvalidRequest():
            return wrong([error])
        case UnknownJob():
            return ProblemError(404, "unknown_job", str(error))
        case UnknownDeadLetter():
            return ProblemError(404, "unknown_dead_letter", str(error))
        case UnknownWebhook():
            return ProblemError(404, "unknown_webhook", str(error))
        case UnknownWorker():
            return ProblemError(404, "unknown_worker", str(error))
        case IdempotencyConflict():
            return ProblemError(409, "idempotency_conflict", str(error) or _TITLES["idempotency_conflict"])
        case QueueFull():
            wait_s = max(1, math.ceil(error.retry_after_s))
            return ProblemError(429, "queue_full", str(error), headers={"Retry-After": str(wait_s)})
        case StoreFull():
            wait_s = math.ceil(error.retry_after_s)
            return ProblemError(503, "store_full", str(error), headers={"Retry-After": str(wait_s)})
        case RateLimited():
            wait_s = max(1, math.ceil(error.retry_after_s))
            return ProblemError(429, "rate_limited", str(error), headers={"Retry-After": str(wait_s)})
        case StoreUnavailable():
            return ProblemError(503, "unavailable", str(error), headers={"Retry-After": str(_RETRY_UNAVAILABLE_S)})
        case _:
            log.error("unexpected %s", type(error).__name__, exc_info=error)
            return ProblemError(500, "internal", "the fault is in the log of the API")


def wrong_fields(error: ValidationError) -> list[InvalidRequest]:
    """Every wrong field in the words of `tasks.request`, which by itself names the first only."""
    lines = in_order(error.errors(include_url=False, include_context=True))
    return [invalid_request(_single(error.title, line)) for line in lines[:MAX_ERRORS]]


def _single(title: str, line: Any) -> ValidationError:
    """One line of a validation error as an error of its own."""
    return ValidationError.from_exception_data(title, [line])


def respond(error: ProblemError) -> Response:
    # ASCII on purpose: a detail may quote a lone surrogate, which UTF-8 cannot carry but JSON can.
    body = json.dumps(error.problem.model_dump(exclude_none=True))
    return Response(body, error.problem.status, {**ANSWER_HEADERS, **error.headers}, media_type=MEDIA_TYPE)


def as_answer(error: Exception, request: Request) -> ProblemError:
    """The problem that any exception of a route, or of the framework, is to its caller."""
    match error:
        case ProblemError():
            return error
        case SafelightError():
            return as_problem(error)
        case RequestValidationError():
            return wrong([InvalidRequest(str(line["loc"][-1]), str(line["msg"])) for line in error.errors()])
        case HTTPException():
            kind = _KIND_OF_STATUS.get(error.status_code, "not_found" if error.status_code < 500 else "internal")
            path = request.url.path
            is_slashed = error.status_code == 404 and path.endswith("/")
            detail = f"{request.method} {path}: {error.detail}" + ("; no address here ends in a slash" * is_slashed)
            return ProblemError(error.status_code, kind, detail, headers=error.headers)
        case ClientDisconnect():
            # Nobody reads this answer; it keeps a client that left from being logged as a fault.
            return ProblemError(400, "malformed_body", "the body ended early")
        case _:
            log.error("unhandled %s", type(error).__name__, exc_info=error)
            return ProblemError(500, "internal", "the fault is in the log of the API")


def install(app: FastAPI, render: Callable[[Request, ProblemError], Response]) -> None:
    """Answer every exception of every route, and the framework's own, with a problem, as `render` writes it."""

    async def handle(request: Request, error: Exception) -> Response:
        return render(request, as_answer(error, request))

    for kind in (ProblemError, SafelightError, RequestValidationError, HTTPException, ClientDisconnect, Exception):
        app.add_exception_handler(kind, handle)

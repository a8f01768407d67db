"""Reads a JSON body within its bound and turns it into requests. Shape and limits are judged by `tasks`, not here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any, NoReturn

from fastapi import Request
from pydantic import ValidationError

from api_stub.problems import MAX_ERRORS, ProblemError, wrong, wrong_fields
from tasks.errors import InvalidRequest
from tasks.models import Models
from tasks.reach import unreachable
from tasks.request import GenerationRequest
from tasks.resolve import faults_of
from tasks.settings import Settings

MAX_BATCH = 1_000
#: From the first byte of a body to its last.
BODY_S = 60.0
#: More than 16 KiB of metadata can hold.
MAX_VALUES = 10_000
#: Deeper metadata would be accepted, and then not be serialised again by every JSON library that meets it.
MAX_NESTING = 64


async def read_json(request: Request, max_bytes: int) -> Any:
    """The parsed body. Raises 415, 413 (as soon as the bound is passed, whatever Content-Length said), 408 or 400."""
    content_type = request.headers.get("content-type", "")
    essence = content_type.partition(";")[0].strip().lower()
    if essence != "application/json" and not (essence.startswith("application/") and essence.endswith("+json")):
        given = f"got {content_type!r}" if content_type else "none was given"
        raise ProblemError(415, "unsupported_media_type", f"Content-Type must be application/json; {given}")
    text = await read_bounded(request, max_bytes)
    try:
        return json.loads(text.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unambiguous)
    except UnicodeDecodeError as error:
        raise ProblemError(400, "malformed_body", f"the body is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ProblemError(400, "malformed_body", "the JSON is nested too deeply") from None
    except (json.JSONDecodeError, _Refused) as error:
        raise ProblemError(400, "malformed_body", f"the body is not JSON: {error}") from None
    except ValueError:  # what is left: Python reads no integer of more than 4300 digits
        raise ProblemError(400, "malformed_body", "the body holds a number of too many digits") from None


async def read_bounded(request: Request, max_bytes: int) -> bytes:
    """The whole body. Raises 415 if it is compressed, 413 once it is past the bound, 408 when it comes too slowly."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):  # a few KB of gzip may be gigabytes
        raise ProblemError(415, "unsupported_media_type", f"Content-Encoding {coding!r} is not read; send it plain")
    # What is left of the body is not read, so the connection cannot be used again.
    last = {"Connection": "close"}
    too_large = ProblemError(413, "body_too_large", f"the body is above {max_bytes} bytes", headers=last)
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > max_bytes:
        raise too_large
    chunks = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                chunks += chunk
                if len(chunks) > max_bytes:
                    raise too_large
    except TimeoutError:
        slow = f"the body was not there after {BODY_S:.0f} s"
        raise ProblemError(408, "body_too_slow", slow, headers=last) from None
    return bytes(chunks)


class _Refused(ValueError):
    """Python's reader would take it, but it is no JSON, or JSON that two readers understand in two ways."""


def _refuse_constant(name: str) -> NoReturn:
    raise _Refused(f"{name} is not a number there")


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of equal names Python keeps the last and others the first; what a gateway checked is to be what we read."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Refused(f"an object names {name[:80]!r} twice")
        found[name] = value
    return found


def one_request(data: Any, models: Models, settings: Settings) -> GenerationRequest:
    """The request of a body, checked against its model but not filled in. Raises 422 with every wrong field."""
    if errors := faults(data, models, settings):
        raise wrong(errors)
    return GenerationRequest.model_validate(data)


def many_requests(data: Any, models: Models, settings: Settings) -> list[GenerationRequest]:
    """The requests of `{"jobs": […]}`; all are checked before any is returned."""
    jobs = data.get("jobs") if isinstance(data, dict) else None
    if not isinstance(jobs, list) or set(data) != {"jobs"}:
        _refuse("jobs", 'the body is {"jobs": [request, …]} and nothing else')
    if not 1 <= len(jobs) <= MAX_BATCH:
        _refuse("jobs", f"holds {len(jobs)} requests; 1 to {MAX_BATCH} are taken at once")
    errors: list[InvalidRequest] = []
    for index, job in enumerate(jobs):
        errors += [_within(index, error) for error in faults(job, models, settings)]
        if len(errors) >= MAX_ERRORS:
            break
    if errors:
        raise wrong(errors)
    return [GenerationRequest.model_validate(job) for job in jobs]


def _within(index: int, error: InvalidRequest) -> InvalidRequest:
    field = f"jobs.{index}.{error.field}".rstrip(".")
    return InvalidRequest(field, error.message, error_type=error.error_type)


def _refuse(field: str, message: str) -> NoReturn:
    raise wrong([InvalidRequest(field, message)])


def faults(data: Any, models: Models, settings: Settings) -> list[InvalidRequest]:
    """Every field that is wrong in itself, for its model, or for these settings; none: it is a request."""
    if not isinstance(data, dict):
        return [InvalidRequest("", "a request is a JSON object")]
    if fault := _shape_fault(data):
        return [fault]
    try:
        request = GenerationRequest.model_validate(data)
    except ValidationError as error:
        errors = wrong_fields(error)
        return errors + _other_wrong_sizes(data, {error.field for error in errors}, models)
    return [*faults_of(request, models), *unreachable(request, settings)]


def _other_wrong_sizes(data: dict[str, Any], known: set[str], models: Models) -> list[InvalidRequest]:
    """One side of a picture may be no size at all and the other too large for the model: tell both at once."""
    rest = {name: data[name] for name in ("model", "height", "width") if name in data and name not in known}
    try:
        request = GenerationRequest.model_validate({"prompt": "-", **rest})
    except ValidationError:
        return []
    return [error for error in faults_of(request, models) if error.field in rest]


def _shape_fault(data: dict[str, Any]) -> InvalidRequest | None:
    """Bounds the work of validation, which reports every wrong value, before it starts."""
    if any(not _is_unicode(key) for key in data):
        return InvalidRequest("", "the name of a field holds a lone surrogate; send valid Unicode")
    level: list[Any] = [data]
    num_values = 0
    for _ in range(MAX_NESTING):
        level = [child for parent in level for child in _children(parent)]
        num_values += len(level)
        if not level:
            return None
        if num_values > MAX_VALUES:
            return InvalidRequest("", f"a request holds at most {MAX_VALUES} values")
    return InvalidRequest("metadata", f"is nested more than {MAX_NESTING} levels deep")


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()

"""Multipart bodies; brackets as openai's clients write them: `image[]`, `loras[][name]`, `metadata[k]`."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from api_stub.body import read_bounded, read_json
from api_stub.openai.errors import OpenAIError
from api_stub.problems import ProblemError

MAX_FIELDS, MAX_FILES = 200, 32
#: Fields that hold JSON where they come as plain text.
_STRUCTURED = ("loras", "metadata", "input_reference")
_NAME = re.compile(r"(?P<name>[^\[\]]+)(?P<list>\[\])?(?:\[(?P<key>[^\[\]]+)\])?")


@dataclass(frozen=True)
class Form:
    fields: dict[str, Any]
    #: By field; several under one name are in the order of the body.
    files: dict[str, list[bytes]]


async def read_form_or_json(request: Request, max_bytes: int) -> Form:
    if is_multipart(request):
        return await read_form(request, max_bytes)
    data = await read_json(request, max_bytes)
    if not isinstance(data, dict):
        raise OpenAIError(400, "invalid_body", "the body is a JSON object")
    return Form(data, {})


def is_multipart(request: Request) -> bool:
    return request.headers.get("content-type", "").lower().startswith("multipart/form-data")


async def read_form(request: Request, max_bytes: int) -> Form:
    """Raises 415, 413 or 400. The body is bounded, so it is kept in memory."""
    if not is_multipart(request):
        given = request.headers.get("content-type", "")
        raise ProblemError(415, "unsupported_media_type", f"Content-Type must be multipart/form-data; got {given!r}")
    body = await read_bounded(request, max_bytes)

    async def chunks() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(
        request.headers, chunks(), max_files=MAX_FILES, max_fields=MAX_FIELDS, max_part_size=max_bytes
    )
    parser.spool_max_size = max_bytes
    try:
        parts = (await parser.parse()).multi_items()
    except MultiPartException as error:
        raise ProblemError(400, "malformed_body", f"the body is not multipart/form-data: {error.message}") from None
    return await _sorted(parts)


async def _sorted(parts: list[tuple[str, UploadFile | str]]) -> Form:
    fields: dict[str, Any] = {}
    files: dict[str, list[bytes]] = {}
    for name, value in parts:
        if isinstance(value, UploadFile):
            files.setdefault(name.removesuffix("[]"), []).append(await value.read())
            await value.close()
        else:
            _put(fields, name, value)
    return Form(fields, files)


def _put(fields: dict[str, Any], name: str, text: str) -> None:
    match = _NAME.fullmatch(name)
    if match is None:
        raise OpenAIError(400, "unknown_parameter", f"Unknown parameter: {name[:80]!r}.", param=name[:80])
    plain, key = match["name"], match["key"]
    value = _parsed(plain, text) if key is None else text
    try:
        if match["list"] and key:
            _put_in_row(fields.setdefault(plain, []), key, value)
        elif match["list"]:
            fields.setdefault(plain, []).append(value)
        elif key:
            fields.setdefault(plain, {})[key] = value
        elif plain in fields:
            raise TypeError("given twice")
        else:
            fields[plain] = value
    except (TypeError, AttributeError):
        raise OpenAIError(400, "invalid_value", f"{plain}: is given twice", param=plain) from None


def _put_in_row(rows: list[dict[str, Any]], key: str, value: Any) -> None:
    """openai's clients write a list of objects by columns: all names, then all scales. Each fills the next row."""
    row = next((row for row in rows if key not in row), None)
    if row is None:
        rows.append(row := {})
    row[key] = value


def _parsed(name: str, text: str) -> Any:
    if name not in _STRUCTURED or not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise OpenAIError(400, "invalid_value", f"{name}: is not JSON", param=name) from None

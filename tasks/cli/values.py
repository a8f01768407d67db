"""Option values beyond scalars: local files, adapters, JSON. Each raises `InvalidRequest` with its field."""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tasks.errors import InvalidRequest

#: Base64 of it still fits into the API's default body limit.
MAX_FILE_BYTES = 12 * 1024 * 1024
_SCHEMES = ("s3://", "https://", "http://", "data:")


def image_uri(field: str, text: str) -> str:
    """A URI as it is; a local file as a data: URI, so that any worker can read it."""
    if text.startswith(_SCHEMES):
        return text
    path = Path(text)
    try:
        with path.open("rb") as file:  # devices and pipes have no size
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            size = max(len(data), path.stat().st_size)
            raise InvalidRequest(field, f"{text} is {size} bytes; at most {MAX_FILE_BYTES} go along with a request")
        body = base64.b64encode(data).decode("ascii")
    except OSError as error:
        raise InvalidRequest(field, f"cannot read {text}: {error.strerror}") from None
    return f"data:{mimetypes.guess_type(path.name)[0] or 'application/octet-stream'};base64,{body}"


def adapters(texts: list[Any]) -> list[Any]:
    """`NAME` or `NAME:SCALE`, in order; what is no text is left to the check of the request."""
    found: list[Any] = []
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            found.append(text)
            continue
        name, colon, scale = text.partition(":")
        try:
            found.append({"name": name, "scale": float(scale)} if colon else {"name": name})
        except ValueError:
            raise InvalidRequest(f"loras.{index}.scale", f"{scale!r} is not a number; write NAME:0.8") from None
    return found


def json_object(field: str, text: str | dict[str, Any]) -> dict[str, Any]:
    if isinstance(text, dict):
        return text
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(field, f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequest(field, 'is a JSON object, as {"order": 7}')
    return value


FIELD_VALUES: Mapping[str, Callable[[Any], Any]] = {
    "image": lambda text: image_uri("image", text),
    "mask_image": lambda text: image_uri("mask_image", text),
    "loras": adapters,
    "metadata": lambda text: json_object("metadata", text),
}

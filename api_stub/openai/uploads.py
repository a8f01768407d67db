"""Pictures that came as files: looked at here, so that a bad one is refused at once; kept in the bucket as inputs."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageChops

from api_stub.backend import Backend
from api_stub.openai.errors import OpenAIError
from tasks.artifacts import ArtifactStore, UploadFailed
from tasks.decode import FORMATS, InvalidImage, decode, opacity
from tasks.errors import StoreUnavailable
from tasks.input_places import uploads_folder

_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif"}


@dataclass(frozen=True)
class Picture:
    """A file that decodes; its size is that of the upright picture."""

    data: bytes
    content_type: str
    width: int
    height: int


async def look_at(data: bytes, param: str) -> Picture:
    """Raises a 400 that names the parameter."""
    return await _refusing(param, _look_at, data, param)


async def mask_from(data: bytes, picture: Picture) -> Picture:
    """A mask in our own convention, white where to repaint, from OpenAI's, transparent where to repaint."""
    return await _refusing("mask", _mask_from, data, picture)


async def keep(backend: Backend, picture: Picture) -> str:
    """The `s3://` URI of the picture. The same bytes have the same URI, so a repeated request is the same request."""
    return await asyncio.to_thread(_keep, backend.artifacts, backend.settings.s3_prefix, picture)


async def _refusing(param: str, look: Callable[..., Picture], *args: Any) -> Picture:
    try:
        return await asyncio.to_thread(look, *args)
    except InvalidImage as error:
        raise OpenAIError(400, "invalid_image_file", f"{param}: {error.message}", param=param) from None


def _look_at(data: bytes, param: str) -> Picture:
    upright = decode(data, param).image
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        content_type = _TYPES.get(image.format or "", "application/octet-stream")
    return Picture(data, content_type, *upright.size)


def _mask_from(data: bytes, picture: Picture) -> Picture:
    alpha = opacity(data, "mask")
    if alpha is None:
        raise InvalidImage("mask", "has no transparency; transparent pixels say where to repaint")
    if alpha.size != (picture.width, picture.height):
        have, want = f"{alpha.width}x{alpha.height}", f"{picture.width}x{picture.height}"
        raise InvalidImage("mask", f"is {have} and the image {want}; they must be equal")
    if alpha.getextrema()[0] == 255:
        raise InvalidImage("mask", "is opaque everywhere, which leaves nothing to repaint")
    stream = io.BytesIO()
    ImageChops.invert(alpha).save(stream, "PNG")
    return Picture(stream.getvalue(), "image/png", *alpha.size)


def _keep(artifacts: ArtifactStore, prefix: str, picture: Picture) -> str:
    digest = hashlib.sha256(picture.data).hexdigest()
    extension = picture.content_type.rpartition("/")[2]
    key = f"{uploads_folder(prefix)}{digest}.{extension}"
    artifacts.ensure_bucket()
    try:
        return artifacts.put(key, picture.data, picture.content_type, digest)
    except UploadFailed as error:
        raise StoreUnavailable(error.message) from error

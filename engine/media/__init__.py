"""Outputs as files: bytes with their generation parameters inside. For any thread but the device's."""

from collections.abc import Mapping
from typing import Any

from ..result import Media, Modality
from .images import encode_image
from .sounds import encode_sound
from .videos import encode_video

CONTENT_TYPES: Mapping[str, str] = {
    "png": "image/png",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "mp4": "video/mp4",
    "wav": "audio/wav",
    "flac": "audio/flac",
}
FORMATS: Mapping[Modality, tuple[str, ...]] = {
    "image": ("png", "jpeg", "webp"),
    "video": ("mp4", "webp", "gif"),
    "audio": ("wav", "flac"),
}


def content_type(output_format: str) -> str:
    """Raises ValueError for a format that `encode` does not write."""
    if output_format not in CONTENT_TYPES:
        raise ValueError(f"output_format must be one of {', '.join(CONTENT_TYPES)}, not {output_format!r}")
    return CONTENT_TYPES[output_format]


def encode(
    media: Media, output_format: str, parameters: Mapping[str, Any] | None = None, *, quality: int = 90
) -> bytes:
    """The file of one output. `parameters` must be plain JSON data; the fields of SamplingParams, `prompt` and `model`
    also go into the text that other tools read. PNG keeps both as iTXt (UTF-8), JPEG and WebP as EXIF, as far as they
    fit, MP4 as `comment` (JSON) and `description` (text), FLAC as `comment` and `parameters`; GIF and WAV keep the
    JSON as their comment. `quality` (1 to 100) is for the lossy formats. Raises ValueError for a format that is not for
    this kind of media.
    """
    content_type(output_format)
    if output_format not in FORMATS[media.kind]:
        raise ValueError(f"{output_format} is not for {media.kind}; use {', '.join(FORMATS[media.kind])}")
    if media.kind == "image":
        return encode_image(media, output_format, parameters, quality)
    if media.kind == "video":
        return encode_video(media, output_format, parameters, quality)
    return encode_sound(media, output_format, parameters)

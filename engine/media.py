"""Outputs as files: bytes with their generation parameters inside. Plain Pillow, for any thread but the device's."""

import io
import json
from collections.abc import Mapping
from typing import Any, Literal

from PIL import ExifTags, Image
from PIL.PngImagePlugin import PngInfo

from .result import Media

ImageFormat = Literal["png", "jpeg", "webp"]

CONTENT_TYPES: Mapping[str, str] = {"png": "image/png", "jpeg": "image/jpeg", "webp": "image/webp"}
#: twice as fast as zlib's own default of 6, for files that are a few in a hundred larger
PNG_COMPRESS_LEVEL = 3
#: a JPEG segment holds 65 533 bytes, its "Exif" mark among them
MAX_EXIF_BYTES = 65_000
JSON_CHUNK = "safelight"


def content_type(output_format: str) -> str:
    """Raises ValueError for a format that `encode` does not write."""
    if output_format not in CONTENT_TYPES:
        raise ValueError(f"output_format must be one of {', '.join(CONTENT_TYPES)}, not {output_format!r}")
    return CONTENT_TYPES[output_format]


def encode(
    media: Media, output_format: str, parameters: Mapping[str, Any] | None = None, *, quality: int = 90
) -> bytes:
    """The file of one image. `parameters` must be plain JSON data; the fields of SamplingParams, `prompt` and `model`
    also go into the text that other tools read. PNG keeps both as iTXt (UTF-8), JPEG and WebP as EXIF, as far as they
    fit. `quality` (1 to 100) is for the lossy formats. Raises ValueError for an unknown format.
    """
    content_type(output_format)
    image = Image.fromarray(media.pixels)
    buffer = io.BytesIO()
    if output_format == "png":
        image.save(buffer, "png", compress_level=PNG_COMPRESS_LEVEL, pnginfo=_png_info(media, parameters))
    else:
        image.save(buffer, output_format, quality=quality, exif=_exif(media, parameters))
    return buffer.getvalue()


def parameters_text(media: Media, parameters: Mapping[str, Any]) -> str:
    """The de-facto `parameters` text: prompt, negative prompt, one line of settings."""
    height, width = media.pixels.shape[-3:-1]
    settings = {
        "Steps": parameters.get("num_inference_steps"),
        "Sampler": parameters.get("noise_scheduler"),
        "CFG scale": parameters.get("guidance_scale"),
        "Seed": media.seed,
        "Size": f"{width}x{height}",
        "Model": parameters.get("model"),
        "Denoising strength": parameters.get("strength"),
    }
    lines = [str(parameters.get("prompt", ""))]
    if parameters.get("negative_prompt"):
        lines.append(f"Negative prompt: {parameters['negative_prompt']}")
    lines.append(", ".join(f"{name}: {_quoted(value)}" for name, value in settings.items() if value is not None))
    return "\n".join(lines).replace("\0", "\N{REPLACEMENT CHARACTER}")


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if any(mark in text for mark in ',:\n"') else text


def _png_info(media: Media, parameters: Mapping[str, Any] | None) -> PngInfo:
    info = PngInfo()
    if parameters is not None:
        info.add_itxt("parameters", parameters_text(media, parameters))
        info.add_itxt(JSON_CHUNK, json.dumps({**parameters, "seed": media.seed}, ensure_ascii=False))
    return info


def _exif(media: Media, parameters: Mapping[str, Any] | None) -> bytes:
    """The text as UserComment and the JSON, in ASCII, as ImageDescription; the JSON, then the text, give way."""
    if parameters is None:
        return b""
    exif = Image.Exif()
    comment = b"UNICODE\0" + parameters_text(media, parameters).encode("utf-16-be")
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.UserComment] = comment
    exif[ExifTags.Base.ImageDescription] = json.dumps({**parameters, "seed": media.seed})
    if len(exif.tobytes()) > MAX_EXIF_BYTES:
        del exif[ExifTags.Base.ImageDescription]
    data = exif.tobytes()
    return data if len(data) <= MAX_EXIF_BYTES else b""

"""Still images as PNG, JPEG and WebP. Plain Pillow."""

import io
from collections.abc import Mapping
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from ..result import Media
from .parameters import exif, parameters_json, parameters_text

#: twice as fast as zlib's own default of 6, for files that are a few in a hundred larger
PNG_COMPRESS_LEVEL = 3
JSON_CHUNK = "safelight"


def encode_image(media: Media, output_format: str, parameters: Mapping[str, Any] | None, quality: int) -> bytes:
    assert media.pixels is not None
    image = Image.fromarray(media.pixels)
    buffer = io.BytesIO()
    if output_format == "png":
        image.save(buffer, "png", compress_level=PNG_COMPRESS_LEVEL, pnginfo=_png_info(media, parameters))
    else:
        image.save(buffer, output_format, quality=quality, exif=exif(media, parameters))
    return buffer.getvalue()


def _png_info(media: Media, parameters: Mapping[str, Any] | None) -> PngInfo:
    info = PngInfo()
    if parameters is not None:
        info.add_itxt("parameters", parameters_text(media, parameters))
        info.add_itxt(JSON_CHUNK, parameters_json(media, parameters))
    return info

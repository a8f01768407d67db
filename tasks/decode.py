"""Bytes of a stranger into an upright 8-bit picture, or `InvalidImage`. Says what it changed; knows no URLs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from PIL import Image, ImageChops, UnidentifiedImageError

from tasks.errors import InvalidRequest

MAX_PIXELS = 64 * 1024 * 1024
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
_ORIENTATION, _BITS_PER_SAMPLE, _TILE_WIDTH, _TILE_LENGTH = 274, 258, 322, 323
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class InvalidImage(InvalidRequest):
    """The picture that `field` names cannot be fetched or decoded, or is not accepted."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message, error_type="invalid_image")


@dataclass(frozen=True, slots=True)
class LoadedImage:
    #: RGB, or L for a mask; 8 bits, upright, opaque.
    image: Image.Image
    #: What was changed on the way, each naming the field.
    warnings: tuple[str, ...] = ()


def decode(data: bytes, field: str, mode: Literal["RGB", "L"] = "RGB") -> LoadedImage:
    """The first frame. Raises `InvalidImage`, and nothing else, whatever `data` holds."""
    with _blamed_on(field):
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            _check_header(image, field)
            warnings = _first_frame_warning(image)
            # Pillow turns TIFF by itself while it loads, and forgets the tag then.
            tag = _number(_tiff_tags(image).get(_ORIENTATION))
            # Before anybody asks for EXIF: of a PNG that would load it, and a second load of a damaged one is silent.
            image.load()
            rotation = _UPRIGHT.get(_orientation(image))
            opaque, changes = _opaque_8_bit(image, data, field)
        upright = opaque if rotation is None else opaque.transpose(rotation)
        if rotation is not None or tag in _UPRIGHT:
            warnings.append("turned upright as its EXIF orientation says")
        told = tuple(f"{field}: {warning}" for warning in (*warnings, *changes))
        return LoadedImage(upright.convert(mode), told)


def opacity(data: bytes, field: str) -> Image.Image | None:
    """The alpha channel as L, 0 where nothing shows; None if there is none. Raises `InvalidImage`, and nothing else."""
    with _blamed_on(field), Image.open(io.BytesIO(data), formats=FORMATS) as image:
        _check_header(image, field)
        image.load()
        return _alpha(image, _depth(image, data))


@contextmanager
def _blamed_on(field: str) -> Iterator[None]:
    try:
        yield
    except InvalidImage:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise InvalidImage(field, f"has more than {MAX_PIXELS} pixels") from None
    except UnidentifiedImageError:
        raise InvalidImage(field, f"is not a picture in one of these formats: {', '.join(FORMATS)}") from None
    except Exception as error:  # Pillow's decoders raise most of Python's types on damaged files
        raise InvalidImage(field, f"is damaged or truncated ({type(error).__name__}: {str(error)[:200]})") from None


def fit(loaded: LoadedImage, width: int, height: int, field: str = "image") -> LoadedImage:
    """The picture in the given size in pixels; says so if that is another than its own."""
    old_width, old_height = loaded.image.size
    if (old_width, old_height) == (width, height):
        return loaded
    warning = f"{field} resized from {old_width}x{old_height} to {width}x{height}"
    if abs(old_width * height - old_height * width) > 0.01 * old_height * width:
        warning += ", which changes its aspect ratio"
    resized = loaded.image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3.0)
    return LoadedImage(resized, (*loaded.warnings, warning))


def _check_header(image: Image.Image, field: str) -> None:
    """Before a pixel is decoded, so that a small file cannot take much memory."""
    width, height = image.size
    tags = _tiff_tags(image)
    tile = _number(tags.get(_TILE_WIDTH)) * _number(tags.get(_TILE_LENGTH))
    if width * height > MAX_PIXELS or tile > MAX_PIXELS:
        raise InvalidImage(field, f"is {width}x{height}; at most {MAX_PIXELS} pixels are accepted")
    if not width or not height:
        raise InvalidImage(field, f"is empty ({width}x{height})")


def _first_frame_warning(image: Image.Image) -> list[str]:
    # MPO, the multi-picture JPEG of phones, holds a depth map or a preview, not an animation.
    if image.format != "MPO" and getattr(image, "is_animated", False):
        return ["has several frames; the first one is used"]
    return []


def _orientation(image: Image.Image) -> int:
    try:
        return _number(image.getexif().get(_ORIENTATION))
    except Exception:  # damaged EXIF in a sound picture
        return 1


def _tiff_tags(image: Image.Image) -> Any:
    return getattr(image, "tag_v2", {})


def _number(value: object) -> int:
    if isinstance(value, tuple) and value:
        value = value[0]
    return value if isinstance(value, int) else 0


def _opaque_8_bit(image: Image.Image, data: bytes, field: str) -> tuple[Image.Image, list[str]]:
    """RGB or L of the same size, and what was changed."""
    changes: list[str] = []
    depth = _depth(image, data)
    if depth == 16 or image.mode.startswith("I"):
        changes.append("16 bits a sample reduced to 8")
    if image.mode == "F" or (image.mode == "I" and not _holds_16_bits(image)):
        raise InvalidImage(field, "has floating-point or 32-bit samples; send 8 or 16 bits a sample")
    if image.mode == "CMYK":
        return image.convert("RGB"), [*changes, "converted from CMYK to RGB without a colour profile"]
    alpha = _alpha(image, depth)
    plain = _scaled(image) if image.mode.startswith("I") else image
    plain = plain.convert("L" if plain.mode in ("1", "L") else "RGB") if alpha is None else plain.convert("RGB")
    if alpha is None or alpha.getextrema() == (255, 255):
        return plain, changes
    white = Image.new("RGB", image.size, "white")
    white.paste(plain, mask=alpha)
    return white, [*changes, "transparency flattened on white"]


def _depth(image: Image.Image, data: bytes) -> int:
    # A PNG begins with signature (8 bytes), length and name of a chunk (8), width and height (8), bit depth.
    return data[24] if image.format == "PNG" else 8


def _holds_16_bits(image: Image.Image) -> bool:
    extrema: Any = image.getextrema()
    bits = 16 if image.format == "PNG" else _number(_tiff_tags(image).get(_BITS_PER_SAMPLE))
    return bits == 16 and extrema[0] >= 0 and extrema[1] <= 65_535


def _scaled(image: Image.Image) -> Image.Image:
    """0…65535 to 0…255, rounded. A plain conversion would clip everything above 255."""
    return image.convert("I").point([(level + 128) // 257 for level in range(65_536)], "L")


def _alpha(image: Image.Image, depth: int) -> Image.Image | None:
    """The opacity as L, from a channel, a palette or the one transparent colour of a PNG; None if there is none."""
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        return image.convert("RGBA").getchannel("A")
    key = image.info.get("transparency")
    if key is None:
        return None
    if image.mode == "P":
        return image.convert("RGBA").getchannel("A")
    if image.mode.startswith("I"):
        return _unlike(image.convert("I"), (key,))
    if image.mode == "RGB":
        return _unlike(image, tuple(value >> 8 if depth == 16 else value for value in key))
    # Pillow spreads grey of fewer bits over 0…255, but leaves the key as it stands in the file.
    return _unlike(image.convert("L"), (key * 255 // (2**depth - 1) if depth < 8 else key,))


def _unlike(image: Image.Image, key: tuple[int, ...]) -> Image.Image:
    """255 where a pixel differs from `key` in any band, else 0."""
    differs: Image.Image | None = None
    for band, value in zip(image.split(), key, strict=True):
        table = [0 if level == value else 255 for level in range(65_536 if band.mode == "I" else 256)]
        other = band.point(table, "L")
        differs = other if differs is None else ImageChops.lighter(differs, other)
    assert differs is not None
    return differs

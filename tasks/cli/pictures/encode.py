"""A picture as the bytes that a terminal draws it from. Each encoder moves the cursor no further than it says."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from itertools import groupby

from PIL import Image

#: Of base64 in one command; kitty's own limit.
_CHUNK = 4_096
_ST = "\x1b\\"


def kitty(image: Image.Image, image_id: int) -> str:
    """Transmit only: nothing is shown, and a picture of the same id is replaced."""
    body = _png_base64(image)
    chunks = [body[start : start + _CHUNK] for start in range(0, len(body), _CHUNK)]
    last = len(chunks) - 1
    heads = [f"a=t,f=100,t=d,i={image_id},q=2,", *[""] * last]
    return "".join(f"\x1b_G{heads[n]}m={int(n < last)};{chunk}{_ST}" for n, chunk in enumerate(chunks))


def kitty_place(columns: int, rows: int, image_id: int, placement: int = 1) -> str:
    """Show a transmitted picture at the cursor, which stays; a placement of the same number moves here."""
    return f"\x1b_Ga=p,i={image_id},p={placement},c={columns},r={rows},C=1,q=2{_ST}"


def iterm2(image: Image.Image, columns: int, rows: int) -> str:
    """At the cursor, within `columns` by `rows` characters; terminals differ in where they leave the cursor."""
    body = _png_base64(image)
    size = f"width={columns};height={rows};preserveAspectRatio=1"
    return f"\x1b]1337;File=inline=1;{size}:{body}\x07"


def sixel(image: Image.Image) -> str:
    """At the cursor, pixel for pixel, in at most 255 colours; terminals differ in where they leave the cursor."""
    flat = image.convert("RGB").quantize(255)
    palette = flat.getpalette() or []
    width, height = flat.size
    pixels = flat.tobytes()
    colours = "".join(
        f"#{index};2;" + ";".join(str(round(part * 100 / 255)) for part in palette[3 * index : 3 * index + 3])
        for index in sorted(set(pixels))
    )
    bands = "-".join(_band(pixels, width, top, min(top + 6, height)) for top in range(0, height, 6))
    return f'\x1bPq"1;1;{width};{height}{colours}{bands}{_ST}'


def _band(pixels: bytes, width: int, top: int, bottom: int) -> str:
    """Six lines of pixels: for each colour in them the columns as bits, run-length coded; `$` goes back to the left."""
    lines = [pixels[row * width : (row + 1) * width] for row in range(top, bottom)]
    return "$".join(f"#{colour}{_runs(lines, colour)}" for colour in sorted({p for line in lines for p in line}))


def _runs(lines: list[bytes], colour: int) -> str:
    columns = (sum((pixel == colour) << bit for bit, pixel in enumerate(column)) for column in zip(*lines, strict=True))
    parts = []
    for bits, run in groupby(columns):
        length, sign = sum(1 for _ in run), chr(63 + bits)
        parts.append(f"!{length}{sign}" if length > 3 else sign * length)
    return "".join(parts)


def half_blocks(image: Image.Image) -> Iterator[str]:
    """Lines of `▀`, one for two lines of pixels: the upper one in the foreground, the lower one behind it."""
    rgb = image.convert("RGB")
    width, height = rgb.size
    for top in range(0, height, 2):
        line, colours = [], ""
        for x in range(width):
            upper = rgb.getpixel((x, top))
            lower = rgb.getpixel((x, min(top + 1, height - 1)))
            wanted = f"\x1b[38;2;{_sgr(upper)};48;2;{_sgr(lower)}m"
            line.append(("" if wanted == colours else wanted) + "▀")
            colours = wanted
        yield "".join(line) + "\x1b[0m"


def _sgr(pixel: object) -> str:
    assert isinstance(pixel, tuple)
    return ";".join(str(part) for part in pixel)


def _png_base64(image: Image.Image) -> str:
    body = io.BytesIO()
    image.convert("RGB").save(body, "PNG")
    return base64.b64encode(body.getvalue()).decode("ascii")

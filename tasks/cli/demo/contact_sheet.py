"""All pictures on one dark sheet with their prompts, as photographers lay out a roll of film."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_COLUMNS = 5
_ZOOM = 2
_MARGIN = 40
_GAP = 28
_CAPTION_PX = 15
_SMALL_PX = 12
_TITLE_PX = 34
_HEAD = 92
#: With the space below it.
_CAPTION_HEIGHT = 92
_GROUND = (17, 18, 23)
_FRAME = (44, 46, 56)
_INK = (232, 230, 224)
_FAINT = (138, 140, 150)

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True)
class Print:
    """One picture of the sheet."""

    path: Path
    caption: str
    detail: str


def draw_sheet(prints: Sequence[Print], title: str, subtitle: str) -> Image.Image:
    """The sheet: pictures enlarged twofold, those of one shape together, rows as high as their highest picture."""
    pictures = sorted(((each, _enlarged(each.path)) for each in prints), key=lambda pair: _shape(pair[1]))
    rows = [pictures[start : start + _COLUMNS] for start in range(0, len(pictures), _COLUMNS)]
    heights = [max(picture.height for _, picture in row) for row in rows]
    cell = max(picture.width for _, picture in pictures)
    width = 2 * _MARGIN + _COLUMNS * cell + (_COLUMNS - 1) * _GAP
    sheet = Image.new("RGB", (width, _MARGIN + _HEAD + sum(heights) + len(rows) * _CAPTION_HEIGHT + _MARGIN), _GROUND)
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, _MARGIN - 8), title, _INK, font=_font(_TITLE_PX))
    draw.text((_MARGIN, _MARGIN + 38), subtitle, _FAINT, font=_font(_CAPTION_PX))
    top = _MARGIN + _HEAD
    for row, height in zip(rows, heights, strict=True):
        for column, (each, picture) in enumerate(row):
            centre = _MARGIN + column * (cell + _GAP) + cell // 2
            x, y = centre - picture.width // 2, top + height - picture.height
            draw.rectangle((x - 2, y - 2, x + picture.width + 1, y + picture.height + 1), _FRAME)
            sheet.paste(picture, (x, y))
            _write_caption(draw, each, centre, top + height + 8, cell)
        top += height + _CAPTION_HEIGHT
    return sheet


def _shape(picture: Image.Image) -> tuple[int, int]:
    return picture.height, picture.width


def _enlarged(path: Path) -> Image.Image:
    with Image.open(path) as picture:
        size = (picture.width * _ZOOM, picture.height * _ZOOM)
        return picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)


def _write_caption(draw: ImageDraw.ImageDraw, each: Print, centre: int, top: int, width: int) -> None:
    font = _font(_CAPTION_PX)
    num_characters = max(8, int(width / (draw.textlength("a large yellow house", font=font) / 20)))
    for line in textwrap.wrap(each.caption, num_characters, max_lines=2, placeholder=" ..."):
        draw.text((centre, top), line, _INK, font=font, anchor="ma")
        top += _CAPTION_PX + 4
    draw.text((centre, top + 2), each.detail, _FAINT, font=_font(_SMALL_PX), anchor="ma")


def _font(size: int) -> Font:
    """Pillow's own: Latin letters only, and no multiplication sign."""
    return ImageFont.load_default(size=size)

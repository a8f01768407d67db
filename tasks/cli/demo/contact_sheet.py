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
_CAPTION_HEIGHT = 66
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
    """The sheet; each picture is enlarged twofold and centred in a cell of the largest one's size."""
    pictures = [_enlarged(each.path) for each in prints]
    width = max(picture.width for picture in pictures)
    height = max(picture.height for picture in pictures)
    num_rows = -(-len(prints) // _COLUMNS)
    sheet = Image.new(
        "RGB",
        (
            2 * _MARGIN + _COLUMNS * width + (_COLUMNS - 1) * _GAP,
            _MARGIN + _HEAD + num_rows * (height + _CAPTION_HEIGHT + _GAP) + _MARGIN - _GAP,
        ),
        _GROUND,
    )
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, _MARGIN - 8), title, _INK, font=_font(_TITLE_PX))
    draw.text((_MARGIN, _MARGIN + 38), subtitle, _FAINT, font=_font(_CAPTION_PX))
    for index, (each, picture) in enumerate(zip(prints, pictures, strict=True)):
        left = _MARGIN + index % _COLUMNS * (width + _GAP)
        top = _MARGIN + _HEAD + index // _COLUMNS * (height + _CAPTION_HEIGHT + _GAP)
        x, y = left + (width - picture.width) // 2, top + height - picture.height
        draw.rectangle((x - 2, y - 2, x + picture.width + 1, y + picture.height + 1), _FRAME)
        sheet.paste(picture, (x, y))
        _write_caption(draw, each, (left, top + height + 8), width)
    return sheet


def _enlarged(path: Path) -> Image.Image:
    with Image.open(path) as picture:
        size = (picture.width * _ZOOM, picture.height * _ZOOM)
        return picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)


def _write_caption(draw: ImageDraw.ImageDraw, each: Print, at: tuple[int, int], width: int) -> None:
    font = _font(_CAPTION_PX)
    num_characters = max(8, int(width / (draw.textlength("a large yellow house", font=font) / 20)))
    lines = textwrap.wrap(each.caption, num_characters, max_lines=2, placeholder=" …")
    for index, line in enumerate(lines):
        draw.text((at[0], at[1] + index * (_CAPTION_PX + 4)), line, _INK, font=font)
    draw.text((at[0], at[1] + len(lines) * (_CAPTION_PX + 4) + 2), each.detail, _FAINT, font=_font(_SMALL_PX))


def _font(size: int) -> Font:
    return ImageFont.load_default(size=size)

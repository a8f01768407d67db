"""A picture small enough for a terminal: bytes in, a place of so many characters and what draws it there out."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from tasks.cli.pictures import encode
from tasks.cli.pictures.terminal import Protocol

#: Of a picture on the screen, in characters, each taken as twice as high as wide.
MAX_COLUMNS, MAX_ROWS = 32, 12
#: Pixels of a character that sixel and the like are drawn with; the terminal's own are not known.
_CELL_WIDTH, _CELL_HEIGHT = 8, 16
#: Pixels that are decoded at most; more is left alone. Outputs are ours, and still come over a network.
_MAX_PIXELS = 64_000_000


@dataclass(frozen=True)
class Thumb:
    """`once` goes out before the first showing, `again` draws at the cursor. Or `lines`, if it is characters."""

    columns: int
    rows: int
    once: str = ""
    again: str = ""
    lines: tuple[str, ...] = ()

    def shown(self) -> str:
        """For a place in the text: room for it first, so that nothing scrolls while it is drawn; ends below it."""
        if self.lines:
            return "".join(f"{line}\n" for line in self.lines)
        return "\n" * self.rows + self.once + self.drawn_above()

    def drawn_above(self) -> str:
        """Draw into the `rows` lines above the cursor, and come back."""
        return f"\x1b7\x1b[{self.rows}A\r{self.again}\x1b8"


def decoded(body: bytes) -> Image.Image | None:
    """The (first) picture in it, or None for what Pillow cannot read or what is too large."""
    try:
        with Image.open(io.BytesIO(body)) as image:
            if image.width * image.height > _MAX_PIXELS:
                return None
            return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def of_data_uri(uri: str) -> Image.Image | None:
    """The picture of a `preview` event."""
    try:
        return decoded(base64.b64decode(uri.partition(",")[2]))
    except ValueError:
        return None


def strip(images: Sequence[Image.Image]) -> Image.Image:
    """Several side by side, each as high as the first."""
    height = images[0].height
    sized = [image.resize((max(1, image.width * height // image.height), height)) for image in images]
    whole = Image.new("RGB", (sum(image.width for image in sized), height))
    left = 0
    for image in sized:
        whole.paste(image, (left, 0))
        left += image.width
    return whole


def thumb_of(
    image: Image.Image, protocol: Protocol, max_columns: int = MAX_COLUMNS, max_rows: int = MAX_ROWS, number: int = 0
) -> Thumb:
    """The picture as large as fits. `number` tells pictures apart that are on the screen at the same time."""
    columns, rows = fitted(image.width, image.height, max_columns, max_rows)
    if protocol is Protocol.BLOCKS:
        return Thumb(columns, rows, lines=tuple(encode.half_blocks(image.resize((columns, rows * 2)))))
    small = image.resize((columns * _CELL_WIDTH, rows * _CELL_HEIGHT))
    match protocol:
        case Protocol.KITTY:
            # Ids are the terminal's, shared by all programs in it; 24 bits, and 0 is none.
            image_id = (os.getpid() * 64 + number) % 0xFFFFFF + 1
            return Thumb(columns, rows, encode.kitty(small, image_id), encode.kitty_place(columns, rows, image_id))
        case Protocol.ITERM2:
            return Thumb(columns, rows, again=encode.iterm2(small, columns, rows))
        case Protocol.SIXEL:
            return Thumb(columns, rows, again=encode.sixel(small))


def fitted(width: int, height: int, max_columns: int, max_rows: int) -> tuple[int, int]:
    """Columns and rows of the same shape, at least one each."""
    scale = min(max_columns / width, max_rows * 2 / height)
    return max(1, round(width * scale)), max(1, round(height * scale / 2))

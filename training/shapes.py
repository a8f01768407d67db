"""Colours, shapes and the canvas of the toy world: supersampled Pillow polygons in fractions of a unit square.

The unit square sits in the middle of the canvas; a wider or taller canvas only continues the background past its edges.
"""

import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

SIZE = 96
SUPERSAMPLING = 3
BEYOND = 4.0

Colour = tuple[int, int, int]
Point = tuple[float, float]

COLOURS: dict[str, Colour] = {
    "red": (222, 42, 42),
    "orange": (246, 142, 30),
    "yellow": (250, 216, 44),
    "green": (48, 160, 72),
    "blue": (44, 92, 214),
    "purple": (132, 60, 182),
    "pink": (246, 132, 182),
    "black": (24, 24, 26),
    "white": (250, 250, 250),
    "brown": (132, 82, 46),
}
OBJECT_COLOURS = [name for name in COLOURS if name != "brown"]
BACKGROUNDS: dict[str, Colour] = {
    "white": (248, 248, 248),
    "cream": (250, 238, 206),
    "light blue": (176, 216, 246),
    "light green": (196, 236, 196),
    "gray": (150, 152, 156),
    "night-blue": (26, 32, 84),
    "black": (14, 14, 16),
}
TOO_CLOSE = {
    ("white", "white"),
    ("white", "cream"),
    ("white", "light blue"),
    ("white", "light green"),
    ("yellow", "cream"),
    ("blue", "night-blue"),
    ("purple", "night-blue"),
    ("brown", "night-blue"),
    ("black", "night-blue"),
    ("black", "black"),
    ("brown", "black"),
    ("purple", "black"),
}
SHAPES = ["circle", "square", "triangle", "star", "heart", "diamond", "moon"]


@dataclass(frozen=True)
class Picture:
    """Pixels `[H, W, 3]`, a caption, `key` (the content said, in one fixed wording) and the facts a check needs."""

    pixels: np.ndarray
    caption: str
    key: str
    facts: dict[str, Any] = field(default_factory=dict)


def with_article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def jitter(rng: random.Random, colour: Colour, amount: int = 6) -> Colour:
    """The colour, each channel moved by at most `amount`."""
    red, green, blue = (max(0, min(255, channel + rng.randint(-amount, amount))) for channel in colour)
    return red, green, blue


def pick_background(rng: random.Random, *colours: str) -> tuple[str, bool]:
    """A background all colours stand out from, and whether the caption names it (white may go unsaid)."""

    def fits(background: str) -> bool:
        return all((colour, background) not in TOO_CLOSE for colour in colours)

    if rng.random() < 0.45 and fits("white"):
        return "white", rng.random() < 0.5
    background = rng.choice([name for name in BACKGROUNDS if fits(name)])
    return background, background != "white" or rng.random() < 0.5


def background_phrase(rng: random.Random, background: str, said: bool) -> str:
    if not said:
        return ""
    short = rng.random() < 1 / 3
    return f", {background} background" if short else f" on {with_article(background)} background"


def _circle(x: float, y: float, r: float) -> list[Point]:
    angles = [2 * math.pi * i / 48 for i in range(48)]
    return [(x + r * math.cos(a), y + r * math.sin(a)) for a in angles]


def _star(x: float, y: float, r: float) -> list[Point]:
    points = []
    for i in range(10):
        reach, angle = (1.1 if i % 2 == 0 else 0.46) * r, i * math.pi / 5
        points.append((x + reach * math.sin(angle), y - reach * math.cos(angle)))
    return points


def _heart(x: float, y: float, r: float) -> list[Point]:
    points = []
    for t in (2 * math.pi * i / 40 for i in range(40)):
        height = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((x + r * 0.062 * 16 * math.sin(t) ** 3, y - r * 0.062 * height - 0.1 * r))
    return points


def _moon(x: float, y: float, r: float) -> list[Point]:
    """A crescent open to the right: most of a circle, then back along a second circle."""
    angles = [math.radians(50 + i * 260 / 30) for i in range(31)]
    outer = [(x + 0.15 * r + r * math.cos(a), y + r * math.sin(a)) for a in angles]
    bite_x = x + 0.62 * r
    bite_r = math.hypot(outer[0][0] - bite_x, outer[0][1] - y)
    start = math.atan2(outer[-1][1] - y, outer[-1][0] - bite_x) % (2 * math.pi)
    stop = math.atan2(outer[0][1] - y, outer[0][0] - bite_x)
    back = [start + (stop - start) * i / 30 for i in range(1, 30)]
    return outer + [(bite_x + bite_r * math.cos(a), y + bite_r * math.sin(a)) for a in back]


def shape_points(shape: str, x: float, y: float, r: float) -> list[Point]:
    """The outline of a named shape of radius `r` around `(x, y)`."""
    if shape == "square":
        e = 0.86 * r
        return [(x - e, y - e), (x + e, y - e), (x + e, y + e), (x - e, y + e)]
    if shape == "triangle":
        return [(x, y - r), (x + r, y + 0.8 * r), (x - r, y + 0.8 * r)]
    if shape == "diamond":
        return [(x, y - 1.1 * r), (x + 0.8 * r, y), (x, y + 1.1 * r), (x - 0.8 * r, y)]
    curved = {"circle": _circle, "star": _star, "heart": _heart, "moon": _moon}
    return curved[shape](x, y, r)


class Canvas:
    """A picture being drawn; coordinates are fractions of the centred unit square, whatever the canvas size."""

    def __init__(self, background: Colour, size: tuple[int, int] = (SIZE, SIZE)) -> None:
        height, width = size[0] * SUPERSAMPLING, size[1] * SUPERSAMPLING
        self.height, self.width, self.unit = height, width, min(height, width)
        self.image = Image.new("RGB", (width, height), background)
        self.pen = ImageDraw.Draw(self.image)

    def _px(self, x: float, y: float) -> Point:
        return x * self.unit + (self.width - self.unit) / 2, y * self.unit + (self.height - self.unit) / 2

    def place(self, x: float, y: float) -> Point:
        """Unit-square coordinates of a point given in fractions of the whole canvas."""
        return ((x - 0.5) * self.width / self.unit + 0.5, (y - 0.5) * self.height / self.unit + 0.5)

    def polygon(self, points: list[Point], colour: Colour) -> None:
        self.pen.polygon([self._px(x, y) for x, y in points], fill=colour)

    def shape(self, name: str, x: float, y: float, r: float, colour: Colour) -> None:
        self.polygon(shape_points(name, x, y, r), colour)

    def rect(self, x0: float, y0: float, x1: float, y1: float, colour: Colour) -> None:
        """A rectangle; sides on the unit square's edge run on to the edge of the canvas."""
        left, top = (x0 if x0 > 0 else -BEYOND), (y0 if y0 > 0 else -BEYOND)
        right, bottom = (x1 if x1 < 1 else BEYOND), (y1 if y1 < 1 else BEYOND)
        self.pen.rectangle([self._px(left, top), self._px(right, bottom)], fill=colour)

    def ellipse(self, x: float, y: float, rx: float, ry: float, colour: Colour) -> None:
        self.pen.ellipse([self._px(x - rx, y - ry), self._px(x + rx, y + ry)], fill=colour)

    def line(self, points: list[Point], width: float, colour: Colour) -> None:
        self.pen.line([self._px(x, y) for x, y in points], fill=colour, width=max(1, int(width * self.unit)))

    def arc(self, x: float, y: float, r: float, degrees: tuple[int, int], width: float, colour: Colour) -> None:
        box = [self._px(x - r, y - r), self._px(x + r, y + r)]
        self.pen.arc(box, *degrees, fill=colour, width=int(width * self.unit))

    def pixels(self) -> np.ndarray:
        return np.asarray(self.image.reduce(SUPERSAMPLING))

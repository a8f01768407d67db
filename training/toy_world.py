"""The toy world: endless captioned pictures of shapes and small scenes, and the split into trained and held-out ones.

Every picture is a function of the random generator handed in; nothing is stored.
"""

import hashlib
import random

from training.scenes import draw_scene
from training.shapes import (
    BACKGROUNDS,
    COLOURS,
    OBJECT_COLOURS,
    SHAPES,
    SIZE,
    Canvas,
    Picture,
    Point,
    background_phrase,
    jitter,
    pick_background,
    with_article,
)

KINDS = {"one": 0.25, "two": 0.40, "count": 0.09, "scene": 0.26}
HELD_OUT_PERCENT = 6

PAIR_SHAPES = ["circle", "square", "triangle", "star", "heart"]
OUTER_SHAPES = ["circle", "square", "heart"]
RELATIONS = ["above", "above", "below", "below", "to the left of", "to the right of", "and", "inside"]
POSITIONS = {
    "on the left": (0.25, 0.5),
    "on the right": (0.75, 0.5),
    "at the top": (0.5, 0.25),
    "at the bottom": (0.5, 0.75),
    "in the center": (0.5, 0.5),
    "in the top left corner": (0.25, 0.25),
    "in the top right corner": (0.75, 0.25),
    "in the bottom left corner": (0.25, 0.75),
    "in the bottom right corner": (0.75, 0.75),
}
NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five"}
LAYOUTS: dict[int, list[Point]] = {
    2: [(0.27, 0.5), (0.73, 0.5)],
    3: [(0.2, 0.5), (0.5, 0.5), (0.8, 0.5)],
    4: [(0.28, 0.28), (0.72, 0.28), (0.28, 0.72), (0.72, 0.72)],
    5: [(0.22, 0.22), (0.78, 0.22), (0.5, 0.5), (0.22, 0.78), (0.78, 0.78)],
}
COUNT_RADIUS = {2: 0.19, 3: 0.14, 4: 0.17, 5: 0.14}
RADIUS = {"": 0.25, "small": 0.15, "large": 0.38}

# (shape, colour name, x, y, radius)
Drawn = tuple[str, str, float, float, float]


def _paint(rng: random.Random, size: tuple[int, int], background: str, drawn: list[Drawn]) -> Canvas:
    canvas = Canvas(jitter(rng, BACKGROUNDS[background], 4), size)
    paint = {colour: jitter(rng, COLOURS[colour]) for _, colour, *_ in drawn}
    for shape, colour, x, y, r in drawn:
        canvas.shape(shape, *canvas.place(x, y), r, paint[colour])
    return canvas


def draw_one(rng: random.Random, size: tuple[int, int]) -> Picture:
    """One shape: a colour, perhaps a size, perhaps a place."""
    colour, shape = rng.choice(OBJECT_COLOURS), rng.choice(SHAPES)
    background, said = pick_background(rng, colour)
    big = rng.choice(["", "", "small", "large"])
    place = rng.choice(["", "", *POSITIONS]) if big != "large" else ""
    r = (0.21 if place and not big else RADIUS[big]) * rng.uniform(0.93, 1.07)
    x, y = POSITIONS.get(place, (0.5, 0.5))
    k = 0.015 if big == "large" else 0.03
    x, y = x + rng.uniform(-k, k), y + rng.uniform(-k, k)
    canvas = _paint(rng, size, background, [(shape, colour, x, y, r)])
    caption = with_article(f"{big} {colour} {shape}".strip()) + (f" {place}" if place else "")
    facts = {"kind": "one", "n": 1, "shape": shape, "colour": colour, "place": place, "size": big, "bg": background}
    return Picture(canvas.pixels(), caption + background_phrase(rng, background, said), caption, facts)


def draw_two(rng: random.Random, size: tuple[int, int]) -> Picture:
    """Two shapes of different colours and how they stand to each other."""
    (first, second) = rng.sample(OBJECT_COLOURS, 2)
    shape, other = rng.choice(PAIR_SHAPES), rng.choice(PAIR_SHAPES)
    background, said = pick_background(rng, first, second)
    relation = rng.choice(RELATIONS)
    if relation == "inside":
        other = rng.choice(OUTER_SHAPES)
        outer, inner = 0.38 * rng.uniform(0.95, 1.03), 0.16 * rng.uniform(0.93, 1.07)
        x, y = 0.5 + rng.uniform(-0.02, 0.02), 0.5 + rng.uniform(-0.02, 0.02)
        drawn = [(other, second, x, y, outer), (shape, first, x, y, inner)]
    else:
        spot, other_spot = {
            "above": ((0.5, 0.27), (0.5, 0.73)),
            "below": ((0.5, 0.73), (0.5, 0.27)),
            "to the right of": ((0.73, 0.5), (0.27, 0.5)),
        }.get(relation, ((0.27, 0.5), (0.73, 0.5)))
        drawn = [
            (s, c, x + rng.uniform(-0.025, 0.025), y + rng.uniform(-0.025, 0.025), 0.2 * rng.uniform(0.93, 1.07))
            for s, c, (x, y) in ((shape, first, spot), (other, second, other_spot))
        ]
    canvas = _paint(rng, size, background, drawn)
    word = rng.choice({"above": ["above", "over"], "below": ["below", "under"]}.get(relation, [relation]))
    nouns = with_article(f"{first} {shape}"), with_article(f"{second} {other}")
    facts = {"kind": "two", "relation": relation, "a": (shape, first), "b": (other, second), "bg": background}
    caption = f"{nouns[0]} {word} {nouns[1]}{background_phrase(rng, background, said)}"
    return Picture(canvas.pixels(), caption, f"{nouns[0]} {relation} {nouns[1]}", facts)


def draw_count(rng: random.Random, size: tuple[int, int]) -> Picture:
    """Two to five equal shapes."""
    n = rng.choice([2, 3, 3, 4, 5])
    colour, shape = rng.choice(OBJECT_COLOURS), rng.choice(SHAPES)
    background, said = pick_background(rng, colour)
    k = 0.015
    drawn = [
        (shape, colour, x + rng.uniform(-k, k), y + rng.uniform(-k, k), COUNT_RADIUS[n] * rng.uniform(0.95, 1.05))
        for x, y in LAYOUTS[n]
    ]
    canvas = _paint(rng, size, background, drawn)
    caption = f"{NUMBERS[n]} {colour} {shape}s"
    facts = {"kind": "count", "n": n, "shape": shape, "colour": colour, "bg": background}
    return Picture(canvas.pixels(), caption + background_phrase(rng, background, said), caption, facts)


def held_out(picture: Picture) -> bool:
    """Whether the picture's content (what its caption says, background aside) is kept from training."""
    digest = hashlib.sha256(picture.key.encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < HELD_OUT_PERCENT


def draw(rng: random.Random, kind: str = "", size: tuple[int, int] = (SIZE, SIZE)) -> Picture:
    """A picture of the kind, or of any kind in the shares of `KINDS`; held-out contents included."""
    kind = kind or rng.choices(list(KINDS), list(KINDS.values()))[0]
    drawers = {"one": draw_one, "two": draw_two, "count": draw_count, "scene": draw_scene}
    return drawers[kind](rng, size)


def draw_split(rng: random.Random, kind: str, size: tuple[int, int], held: bool) -> Picture:
    """The next picture on the asked side of the split."""
    while True:
        picture = draw(rng, kind, size)
        if held_out(picture) == held:
            return picture


def reword(rng: random.Random, caption: str) -> str:
    """The caption as a person might type it: now and then a lead-in, or without its first article."""
    chance = rng.random()
    if chance < 0.06:
        return rng.choice(["a picture of ", "a drawing of ", "an image of "]) + caption
    return caption.removeprefix("an ").removeprefix("a ") if chance < 0.16 else caption

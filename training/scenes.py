"""Ten small scenes of the toy world: houses, boats, trees, flowers, mountains, faces, cars, fish, balloons, snowmen."""

import math
import random
from collections.abc import Mapping

from training.shapes import (
    BACKGROUNDS,
    COLOURS,
    Canvas,
    Colour,
    Picture,
    background_phrase,
    jitter,
    pick_background,
    with_article,
)

SKY: dict[str, Colour] = {"day": (150, 205, 245), "night": (24, 30, 80), "sunset": (250, 165, 100)}
TIMES = ["day", "day", "day", "night", "sunset"]
PAINTS = ["red", "orange", "yellow", "green", "blue", "purple", "pink", "white"]
INK: Colour = (26, 24, 26)
WHITE: Colour = (252, 252, 254)
LAMP: Colour = (250, 245, 200)
TRUNK: Colour = (106, 70, 40)


def _u(rng: random.Random, spread: float) -> float:
    return rng.uniform(-spread, spread)


def _grass(rng: random.Random, time: str) -> Colour:
    return jitter(rng, (34, 84, 60) if time == "night" else (96, 186, 88))


def _air(rng: random.Random, time: str, size: tuple[int, int]) -> Canvas:
    return Canvas(jitter(rng, SKY[time], 4), size)


def _light(rng: random.Random, canvas: Canvas, time: str, horizon: float = 0.5) -> str:
    """Sun, or moon and stars, or a low red sun; returns the words for it."""
    x, y = rng.uniform(0.78, 0.84), rng.uniform(0.15, 0.2)
    if time == "day":
        canvas.shape("circle", x, y, 0.1, jitter(rng, COLOURS["yellow"]))
        return rng.choice([" under a yellow sun", " under the sun", " on a sunny day"])
    if time == "night":
        for star_x, star_y in [(0.12, 0.1), (0.35, 0.2), (0.55, 0.08), (0.22, 0.33)]:
            canvas.shape("star", star_x + _u(rng, 0.02), star_y + _u(rng, 0.02), 0.026, LAMP)
        canvas.shape("moon", x, y, 0.1, LAMP)
        return rng.choice([" at night", " under the moon", " under a moon at night"])
    canvas.shape("circle", 0.5 + _u(rng, 0.1), horizon, 0.15, (250, 90, 50))
    return " at sunset"


def _tree(rng: random.Random, canvas: Canvas, x: float, y: float, s: float) -> None:
    canvas.rect(x - 0.035 * s, y - 0.3 * s, x + 0.035 * s, y, jitter(rng, (120, 74, 40)))
    canvas.shape("circle", x, y - 0.42 * s, 0.2 * s, jitter(rng, (40, 130, 60)))


def house(rng: random.Random, size: tuple[int, int]) -> Picture:
    time, ground = rng.choice(TIMES), 0.74
    canvas = _air(rng, time, size)
    light = _light(rng, canvas, time, ground)
    canvas.rect(0, ground, 1, 1, _grass(rng, time))
    wall = rng.choice(PAINTS)
    roof = rng.choice([name for name in [*PAINTS, "brown"] if name != wall])
    with_tree = rng.random() < 0.5
    x = (0.36 if with_tree else 0.46) + _u(rng, 0.02)
    canvas.rect(x - 0.2, ground - 0.3, x + 0.2, ground + 0.04, jitter(rng, COLOURS[wall]))
    eaves = ground - 0.3
    canvas.polygon([(x - 0.25, eaves), (x + 0.25, eaves), (x, eaves - 0.2)], jitter(rng, COLOURS[roof]))
    canvas.rect(x - 0.05, ground - 0.13, x + 0.05, ground + 0.04, (92, 58, 36))
    pane = (255, 240, 150) if time == "night" else (215, 238, 250)
    canvas.rect(x + 0.08, ground - 0.24, x + 0.16, ground - 0.15, pane)
    if with_tree:
        _tree(rng, canvas, 0.8 + _u(rng, 0.02), ground + 0.05, 0.75)
    what = f"{with_article(f'{wall} house')} with {with_article(f'{roof} roof')}"
    beside = rng.choice([" beside a tree", " next to a tree", " and a tree"]) if with_tree else ""
    facts = {"time": time, "colour": wall, "roof": roof, "tree": with_tree}
    return _picture(canvas, what + beside + light, f"{what} {with_tree} {time}", "house", facts)


def boat(rng: random.Random, size: tuple[int, int]) -> Picture:
    time, water = rng.choice(TIMES), 0.62
    canvas = _air(rng, time, size)
    light = _light(rng, canvas, time, water)
    canvas.rect(0, water, 1, 1, jitter(rng, (18, 50, 120) if time == "night" else (30, 100, 190)))
    hull = rng.choice(["red", "brown", "black", "white", "green", "orange", "purple"])
    sail = rng.choice([name for name in PAINTS if name != hull])
    x = 0.42 + _u(rng, 0.03)
    canvas.rect(x - 0.012, 0.22, x + 0.012, 0.62, TRUNK)
    cloth = jitter(rng, COLOURS[sail])
    canvas.polygon([(x + 0.03, 0.24), (x + 0.03, 0.56), (x + 0.28, 0.56)], cloth)
    canvas.polygon([(x - 0.03, 0.3), (x - 0.03, 0.56), (x - 0.2, 0.56)], cloth)
    planks = [(x - 0.28, 0.6), (x + 0.3, 0.6), (x + 0.2, 0.76), (x - 0.18, 0.76)]
    canvas.polygon(planks, jitter(rng, COLOURS[hull]))
    what = f"{with_article(f'{hull} boat')} with {with_article(f'{sail} sail')}"
    caption = what + rng.choice([" on the sea", " on the sea", " on the water"]) + light
    return _picture(canvas, caption, f"{what} {time}", "boat", {"time": time, "colour": hull, "sail": sail})


def tree(rng: random.Random, size: tuple[int, int]) -> Picture:
    time = rng.choice(TIMES)
    canvas = _air(rng, time, size)
    light = _light(rng, canvas, time, 0.72)
    canvas.ellipse(0.5, 1.05, 0.75, 0.36, _grass(rng, time))
    _tree(rng, canvas, 0.48 + _u(rng, 0.03), 0.74, 1.1)
    caption = rng.choice(["a tree", "a green tree"]) + " on a hill" + light
    return _picture(canvas, caption, caption, "tree", {"time": time})


def flower(rng: random.Random, size: tuple[int, int]) -> Picture:
    time = rng.choice(["day", "day", "day", "day", "night"])
    canvas = _air(rng, time, size)
    canvas.rect(0, 0.78, 1, 1, _grass(rng, time))
    petals = rng.choice([name for name in PAINTS if name != "green"])
    x, y, leaf, paint = 0.5 + _u(rng, 0.03), 0.4, (40, 120, 50), jitter(rng, COLOURS[petals])
    canvas.rect(x - 0.015, y, x + 0.015, 0.86, leaf)
    for side in (1, -1):
        canvas.polygon([(x, 0.74), (x + 0.16 * side, 0.62), (x + 0.06 * side, 0.74)], leaf)
    for angle in (i * math.pi / 3 for i in range(6)):
        canvas.shape("circle", x + 0.15 * math.sin(angle), y - 0.15 * math.cos(angle), 0.085, paint)
    canvas.shape("circle", x, y, 0.08, (130, 80, 40) if petals == "yellow" else (250, 200, 40))
    where = rng.choice([" in a field", " in the grass", ""])
    caption = with_article(f"{petals} flower") + where + (" at night" if time == "night" else "")
    return _picture(canvas, caption, caption, "flower", {"time": time, "colour": petals})


def mountain(rng: random.Random, size: tuple[int, int]) -> Picture:
    time = rng.choice(TIMES)
    canvas = _air(rng, time, size)
    light = _light(rng, canvas, time, 0.6)
    canvas.polygon([(0.5, 0.82), (0.98, 0.82), (0.74, 0.4)], jitter(rng, (90, 92, 112)))
    canvas.polygon([(0.02, 0.82), (0.74, 0.82), (0.38, 0.24)], jitter(rng, (110, 112, 130)))
    snow = [(0.38, 0.24), (0.28, 0.4), (0.34, 0.37), (0.38, 0.42), (0.43, 0.37), (0.48, 0.4)]
    canvas.polygon(snow, WHITE)
    canvas.rect(0, 0.8, 1, 1, _grass(rng, time))
    caption = rng.choice(["mountains", "snowy mountains", "a snowy mountain"]) + light
    return _picture(canvas, caption, caption, "mountain", {"time": time})


def face(rng: random.Random, size: tuple[int, int]) -> Picture:
    background, said = pick_background(rng, "yellow")
    colour, mood = rng.choice(["yellow", "yellow", "green", "orange", "pink", "red"]), rng.choice(["smiling", "sad"])
    canvas = Canvas(jitter(rng, BACKGROUNDS[background], 4), size)
    x, y = 0.5 + _u(rng, 0.02), 0.5 + _u(rng, 0.02)
    canvas.shape("circle", x, y, 0.38, jitter(rng, COLOURS[colour]))
    for side in (1, -1):
        canvas.ellipse(x + 0.13 * side, y - 0.1, 0.048, 0.065, INK)
    if mood == "smiling":
        canvas.arc(x, y + 0.02, 0.21, (20, 160), 0.045, INK)
    else:
        canvas.arc(x, y + 0.29, 0.19, (205, 335), 0.045, INK)
    what = f"a {mood} {colour} face"
    facts = {"time": "day", "colour": colour, "mood": mood, "bg": background}
    caption = what + background_phrase(rng, background, said)
    return _picture(canvas, caption, f"{what} {background}", "face", facts)


def car(rng: random.Random, size: tuple[int, int]) -> Picture:
    time, colour = rng.choice(TIMES), rng.choice(PAINTS)
    canvas = _air(rng, time, size)
    light = _light(rng, canvas, time, 0.66)
    canvas.rect(0, 0.62, 1, 0.7, _grass(rng, time))
    canvas.rect(0, 0.7, 1, 1, jitter(rng, (92, 94, 100)))
    x, paint, glass = 0.48 + _u(rng, 0.04), jitter(rng, COLOURS[colour]), (205, 232, 248)
    canvas.polygon([(x - 0.2, 0.58), (x - 0.12, 0.42), (x + 0.12, 0.42), (x + 0.22, 0.58)], paint)
    canvas.rect(x - 0.32, 0.56, x + 0.34, 0.72, paint)
    canvas.polygon([(x - 0.14, 0.57), (x - 0.085, 0.46), (x - 0.01, 0.46), (x - 0.01, 0.57)], glass)
    canvas.polygon([(x + 0.03, 0.46), (x + 0.1, 0.46), (x + 0.16, 0.57), (x + 0.03, 0.57)], glass)
    for wheel in (-0.18, 0.2):
        canvas.shape("circle", x + wheel, 0.73, 0.085, INK)
        canvas.shape("circle", x + wheel, 0.73, 0.035, (190, 190, 195))
    what = with_article(f"{colour} car")
    caption = what + rng.choice([" on a road", " on the road"]) + light
    return _picture(canvas, caption, f"{what} {time}", "car", {"time": time, "colour": colour})


def fish(rng: random.Random, size: tuple[int, int]) -> Picture:
    colour = rng.choice(["red", "orange", "yellow", "pink", "purple", "green"])
    canvas = Canvas(jitter(rng, (40, 120, 205), 4), size)
    paint, x, y = jitter(rng, COLOURS[colour]), 0.46 + _u(rng, 0.03), 0.5 + _u(rng, 0.03)
    canvas.rect(0, 0.86, 1, 1, jitter(rng, (226, 200, 140)))
    canvas.polygon([(x + 0.18, y), (x + 0.38, y - 0.17), (x + 0.38, y + 0.17)], paint)
    canvas.ellipse(x, y, 0.26, 0.17, paint)
    canvas.shape("circle", x - 0.14, y - 0.04, 0.045, WHITE)
    canvas.shape("circle", x - 0.145, y - 0.04, 0.022, INK)
    for k in range(3):
        canvas.shape("circle", x - 0.3 + 0.03 * k, y - 0.12 - 0.12 * k, 0.025, (200, 230, 250))
    caption = with_article(f"{colour} fish") + rng.choice([" in the sea", " under water", " in the water"])
    return _picture(canvas, caption, caption, "fish", {"time": "day", "colour": colour})


def balloon(rng: random.Random, size: tuple[int, int]) -> Picture:
    colour, rope = rng.choice(PAINTS), (90, 60, 40)
    canvas = _air(rng, "day", size)
    x, y, paint = 0.5 + _u(rng, 0.04), 0.38 + _u(rng, 0.02), jitter(rng, COLOURS[colour])
    for cloud_x, cloud_y in [(0.16, 0.2), (0.82, 0.68)]:
        for dx, dy in ((0, 0), (0.06, 0.02), (-0.06, 0.02)):
            canvas.ellipse(cloud_x + dx, cloud_y + dy, 0.1, 0.05, WHITE)
    for side in (-1, 1):
        canvas.line([(x + 0.2 * side, y + 0.12), (x + 0.06 * side, y + 0.4)], 0.012, rope)
    canvas.polygon([(x - 0.24, y + 0.08), (x + 0.24, y + 0.08), (x + 0.06, y + 0.3), (x - 0.06, y + 0.3)], paint)
    canvas.shape("circle", x, y, 0.26, paint)
    canvas.rect(x - 0.07, y + 0.38, x + 0.07, y + 0.48, (140, 92, 50))
    caption = with_article(f"{colour} balloon") + rng.choice([" in the sky", " in a blue sky"])
    return _picture(canvas, caption, caption, "balloon", {"time": "day", "colour": colour})


def snowman(rng: random.Random, size: tuple[int, int]) -> Picture:
    time, scarf = rng.choice(["day", "day", "day", "day", "night"]), rng.choice(["red", "green", "blue", "purple"])
    canvas = _air(rng, time, size)
    light = _light(rng, canvas, time)
    canvas.rect(0, 0.76, 1, 1, (240, 244, 250))
    x, rim = 0.45 + _u(rng, 0.03), (225, 232, 242)
    for y, r, dy in ((0.7, 0.2, 0.01), (0.4, 0.145, 0.005)):
        canvas.shape("circle", x, y, r, rim)
        canvas.shape("circle", x, y - dy, r - (0.01 if r == 0.2 else 0.007), WHITE)
    canvas.rect(x - 0.13, 0.265, x + 0.13, 0.295, INK)
    canvas.rect(x - 0.085, 0.13, x + 0.085, 0.28, INK)
    for dot_x, dot_y in [(-0.05, 0.37), (0.05, 0.37), (0, 0.6), (0, 0.68), (0, 0.76)]:
        canvas.shape("circle", x + dot_x, dot_y, 0.02, INK)
    canvas.polygon([(x, 0.4), (x + 0.13, 0.425), (x, 0.44)], COLOURS["orange"])
    canvas.rect(x - 0.13, 0.49, x + 0.13, 0.535, jitter(rng, COLOURS[scarf]))
    caption = f"a snowman with {with_article(scarf)} scarf" + rng.choice([" in the snow", ""]) + light
    return _picture(canvas, caption, caption, "snowman", {"time": time, "colour": scarf})


def _picture(canvas: Canvas, caption: str, key: str, scene: str, facts: Mapping[str, object]) -> Picture:
    return Picture(canvas.pixels(), caption, key, {"kind": "scene", "scene": scene, **facts})


SCENES = [house, house, boat, boat, tree, flower, mountain, face, face, car, fish, balloon, snowman]


def draw_scene(rng: random.Random, size: tuple[int, int]) -> Picture:
    return rng.choice(SCENES)(rng, size)

"""The automatic check: does a picture show what its caption says? Colour segmentation, components and templates for
shapes; the nearest of many rendered scenes for scenes. Knows nothing of models."""

import random
from functools import cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from training.shapes import BACKGROUNDS, COLOURS, SHAPES, SIZE, Picture, shape_points
from training.toy_world import POSITIONS, draw

TEMPLATE = 24
SMALLEST = 40
SCENE_FACTS = ("scene", "time", "colour", "roof", "sail", "mood")

Pixels = np.ndarray
# Rows of (y, x).
Component = np.ndarray


def components(mask: np.ndarray) -> list[Component]:
    """The 4-connected regions of at least `SMALLEST` pixels, largest first."""
    height, width = mask.shape
    seen, found = np.zeros_like(mask), []
    for y, x in zip(*np.nonzero(mask), strict=True):
        if seen[y, x]:
            continue
        seen[y, x], todo, points = True, [(y, x)], []
        while todo:
            a, b = todo.pop()
            points.append((a, b))
            for c, d in ((a + 1, b), (a - 1, b), (a, b + 1), (a, b - 1)):
                if 0 <= c < height and 0 <= d < width and mask[c, d] and not seen[c, d]:
                    seen[c, d] = True
                    todo.append((c, d))
        if len(points) >= SMALLEST:
            found.append(np.array(points))
    return sorted(found, key=len, reverse=True)


@cache
def template(shape: str) -> tuple[np.ndarray, float]:
    """The shape filling a square mask, and its width over its height."""
    points = np.array(shape_points(shape, 0, 0, 1))
    extent = np.ptp(points, axis=0)
    scaled = (points - points.min(0)) / extent * (TEMPLATE * 4 - 1)
    image = Image.new("L", (TEMPLATE * 4, TEMPLATE * 4))
    ImageDraw.Draw(image).polygon([(x, y) for x, y in scaled], fill=255)
    return np.asarray(image.reduce(4)) > 127, float(extent[0] / extent[1])


def classify(points: Component) -> str:
    """The shape whose template fits the component best (overlap, less a penalty for wrong proportions)."""
    (top, left), (bottom, right) = points.min(0), points.max(0) + 1
    mask = np.zeros((bottom - top, right - left), np.uint8)
    mask[points[:, 0] - top, points[:, 1] - left] = 255
    fitted = np.asarray(Image.fromarray(mask).resize((TEMPLATE, TEMPLATE), Image.Resampling.BILINEAR)) > 127
    proportions = (right - left) / (bottom - top)

    def score(shape: str) -> float:
        model, aspect = template(shape)
        overlap = (fitted & model).sum() / max(1, (fitted | model).sum())
        return float(overlap - 0.35 * abs(np.log(proportions / aspect)))

    return max(SHAPES, key=score)


def centre(points: Component) -> tuple[float, float]:
    """The middle of the bounding box as fractions `(x, y)`."""
    y, x = (points.min(0) + points.max(0) + 1) / 2 / SIZE
    return float(x), float(y)


def _background(pixels: Pixels) -> str:
    edge = np.concatenate([pixels[:4].reshape(-1, 3), pixels[-4:].reshape(-1, 3)])
    middle = np.median(edge, 0)
    return min(BACKGROUNDS, key=lambda name: float(((middle - np.array(BACKGROUNDS[name])) ** 2).sum()))


def _regions(pixels: Pixels, background: str) -> dict[str, np.ndarray]:
    """Per colour, the pixels nearest to it of all colours and the background."""
    palette = np.array([*COLOURS.values(), BACKGROUNDS[background]], float)
    nearest = ((pixels[:, :, None].astype(float) - palette) ** 2).sum(-1).argmin(-1)
    return {name: nearest == i for i, name in enumerate(COLOURS)}


def _check_same(regions: dict[str, np.ndarray], facts: dict[str, Any]) -> dict[str, bool]:
    found = components(regions[facts["colour"]])
    shapes = [classify(points) for points in found[:6]]
    right = {
        "colour": bool(found),
        "count": len(found) == facts["n"],
        "shape": bool(shapes) and all(shape == facts["shape"] for shape in shapes),
    }
    if facts["kind"] == "one":
        right["position"] = False
        if found:
            (x, y), (want_x, want_y) = centre(found[0]), POSITIONS.get(facts["place"], (0.5, 0.5))
            right["position"] = abs(x - want_x) < 0.13 and abs(y - want_y) < 0.13
        if facts["size"] and found:
            width = (np.ptp(found[0][:, 1]) + 1) / SIZE
            right["size"] = bool(width < 0.36 if facts["size"] == "small" else width > 0.48)
    return right


def _check_two(regions: dict[str, np.ndarray], facts: dict[str, Any]) -> dict[str, bool]:
    (shape, colour), (other_shape, other_colour) = facts["a"], facts["b"]
    found, others = components(regions[colour]), components(regions[other_colour])
    right = {"colour": bool(found and others), "count": len(found) == 1 and len(others) == 1}
    if not (found and others):
        return right | {"shape": False, "position": False}
    first, other, relation = found[0], others[0], facts["relation"]
    filled = np.concatenate([other, first]) if relation == "inside" else other
    right["shape"] = classify(first) == shape and classify(filled) == other_shape
    (x, y), (other_x, other_y) = centre(first), centre(other)
    dx, dy = x - other_x, y - other_y
    right["position"] = {
        "above": dy < -0.25,
        "below": dy > 0.25,
        "to the left of": dx < -0.25,
        "and": dx < -0.25,
        "to the right of": dx > 0.25,
        "inside": abs(dx) < 0.12 and abs(dy) < 0.12,
    }[relation]
    return right


class SceneBank:
    """Rendered scenes at 32x32; a picture shows the scene it is nearest to."""

    def __init__(self, n: int = 20_000, seed: int = 999) -> None:
        rng = random.Random(seed)
        scenes = [draw(rng, "scene") for _ in range(n)]
        self.facts = [scene.facts for scene in scenes]
        self.small = np.stack([self._shrink(scene.pixels) for scene in scenes])
        self.squares = (self.small**2).sum(1)

    @staticmethod
    def _shrink(pixels: Pixels) -> np.ndarray:
        return np.asarray(Image.fromarray(pixels).resize((32, 32), Image.Resampling.BOX)).astype(np.float32).ravel()

    def check(self, pixels: Pixels, facts: dict[str, Any]) -> dict[str, bool]:
        distance = self.squares - 2 * self.small @ self._shrink(pixels)
        nearest = self.facts[int(distance.argmin())]
        return {name: nearest.get(name) == facts[name] for name in SCENE_FACTS if name in facts}


def check(pixels: Pixels, picture: Picture, bank: SceneBank | None = None) -> dict[str, bool]:
    """Which of the things that `picture` says hold of `pixels`; `all` is their conjunction."""
    facts = picture.facts
    if facts["kind"] == "scene":
        assert bank is not None
        right = bank.check(pixels, facts)
    else:
        regions = _regions(pixels, facts["bg"])
        right = (_check_two if facts["kind"] == "two" else _check_same)(regions, facts)
        right["background"] = _background(pixels) == facts["bg"]
    return right | {"all": all(right.values())}

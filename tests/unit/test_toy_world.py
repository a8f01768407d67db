"""The toy world: a seed fixes the picture, the check believes true renders, the split keeps its word."""

import random

import numpy as np
import pytest

from training.checks import SceneBank, check
from training.scenes import SCENES
from training.toy_world import KINDS, draw, draw_split, held_out

SIZES = [(96, 96), (96, 128), (128, 96)]


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_seed_fixes_the_picture(kind: str) -> None:
    first, again = draw(random.Random(3), kind), draw(random.Random(3), kind)
    assert first.caption == again.caption
    assert first.facts == again.facts
    assert np.array_equal(first.pixels, again.pixels)


@pytest.mark.parametrize("size", SIZES)
def test_every_kind_draws_on_every_size(size: tuple[int, int]) -> None:
    rng = random.Random(5)
    for kind in KINDS:
        assert draw(rng, kind, size).pixels.shape == (*size, 3)
    for scene in SCENES:
        assert scene(rng, size).pixels.shape == (*size, 3)


def test_a_wider_canvas_only_continues_the_background() -> None:
    square, wide = draw(random.Random(8), "scene"), draw(random.Random(8), "scene", (96, 128))
    assert square.caption == wide.caption
    assert np.array_equal(wide.pixels[8:-8, 24:-24], square.pixels[8:-8, 8:-8])


@pytest.mark.parametrize("kind", ["one", "two", "count"])
def test_the_check_believes_true_renders_of_shapes(kind: str) -> None:
    rng = random.Random(11)
    for picture in (draw(rng, kind) for _ in range(8)):
        assert check(picture.pixels, picture)["all"], picture.caption


@pytest.mark.parametrize("kind", ["one", "two", "count"])
def test_the_check_sees_a_wrong_picture(kind: str) -> None:
    rng = random.Random(13)
    picture, other = draw(rng, kind), draw(rng, kind)
    assert picture.key != other.key
    assert not check(other.pixels, picture)["all"]


def test_the_check_recognises_scenes() -> None:
    bank, rng = SceneBank(n=1500), random.Random(17)
    for picture in (draw(rng, "scene") for _ in range(8)):
        assert check(picture.pixels, picture, bank)["scene"], picture.caption


def test_the_split_is_disjoint_and_ignores_the_background() -> None:
    rng = random.Random(19)
    trained = {draw_split(rng, "", (96, 96), held=False).key for _ in range(200)}
    kept = {draw_split(rng, "", (96, 96), held=True).key for _ in range(20)}
    assert not trained & kept
    pairs = [draw(rng, "two") for _ in range(50)]
    assert not any(picture.facts["bg"] + " background" in picture.key for picture in pairs)
    assert 0.01 < np.mean([held_out(draw(rng)) for _ in range(400)]) < 0.13

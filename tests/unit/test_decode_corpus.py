"""A thousand files, flipped, cut, spliced and lied about: each is a right picture or refused, in little memory."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, features

from tasks.decode import FORMATS, InvalidImage, decode
from tests.unit import decode_corpus

ROOT = Path(__file__).parents[2]
#: The sound files are of a few KB of pixels; one wrong size taken at its word wants more than this.
FLAT_MIB = 96
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def met() -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.unit.decode_corpus"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=50)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_each_is_decoded_right_or_refused(met: dict[str, Any]) -> None:
    kinds = met["kinds"]
    assert sum(kind["decoded"] + kind["refused"] for kind in kinds.values()) == 1_000
    assert {name: kind["wrong"] for name, kind in kinds.items() if kind["wrong"]} == {}


def test_the_damage_is_neither_too_slight_nor_too_great(met: dict[str, Any]) -> None:
    """Of each accepted kind some files are still pictures, and some fail behind their headers."""
    for name, kind in met["kinds"].items():
        if name != "avif":
            assert kind["decoded"] and kind["refused"] - kind["not_a_picture"] > 0, name


def test_memory_stays_flat(met: dict[str, Any]) -> None:
    assert met["grown_mib"] <= FLAT_MIB


def test_a_format_that_is_not_accepted_stays_so_whatever_it_holds(met: dict[str, Any]) -> None:
    avif = met["kinds"]["avif"]
    assert features.check("avif") and "AVIF" not in FORMATS
    assert avif["not_a_picture"] == decode_corpus.EACH


def test_the_sound_files_are_decoded() -> None:
    for name, data in decode_corpus.originals().items():
        if name != "avif":
            assert sorted(decode(data, "image").image.size, reverse=True) == list(decode_corpus.SIZE), name


@pytest.mark.parametrize("image_format", ["AVIF", "JPEG2000", "ICO", "TGA", "PPM", "DDS", "PCX", "SGI", "PDF"])
def test_other_formats_are_refused_and_told_what_is_taken(image_format: str) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (32, 32), "red").save(stream, image_format)
    with pytest.raises(InvalidImage, match="not a picture in one of these formats: PNG, JPEG, WEBP, GIF, BMP, TIFF"):
        decode(stream.getvalue(), "image")

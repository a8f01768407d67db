"""engine.media: pixels survive, parameters travel with the file."""

import io
import json

import numpy as np
import pytest
from PIL import ExifTags, Image

from engine import Media
from engine.media import content_type, encode

PARAMETERS = {
    "prompt": "ein Häuschen, 夜 🙂",
    "negative_prompt": "blurry",
    "num_inference_steps": 20,
    "guidance_scale": 4.0,
    "noise_scheduler": "DDIMScheduler",
    "model": "tiny",
    "seed": 1,
}
TEXT = (
    "ein Häuschen, 夜 🙂\nNegative prompt: blurry\n"
    "Steps: 20, Sampler: DDIMScheduler, CFG scale: 4.0, Seed: 9, Size: 24x16, Model: tiny"
)


@pytest.fixture
def media() -> Media:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 24, 3), dtype=np.uint8)
    return Media(pixels=pixels, seed=9)


def decode(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def user_comment(image: Image.Image) -> str:
    raw = image.getexif().get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.UserComment]
    assert raw.startswith(b"UNICODE\0")
    return raw[8:].decode("utf-16-be")


def test_png_is_lossless_and_carries_text_and_json(media: Media) -> None:
    image = decode(encode(media, "png", PARAMETERS))
    assert np.array_equal(np.asarray(image), media.pixels)
    assert image.text["parameters"] == TEXT
    assert json.loads(image.text["safelight"]) == {**PARAMETERS, "seed": 9}


def test_png_uses_itxt_so_that_any_script_survives(media: Media) -> None:
    data = encode(media, "png", PARAMETERS)
    assert data.count(b"iTXt") == 2
    assert "夜 🙂".encode() in data


@pytest.mark.parametrize("output_format", ["jpeg", "webp"])
def test_lossy_formats_carry_text_and_json_in_exif(media: Media, output_format: str) -> None:
    image = decode(encode(media, output_format, PARAMETERS))
    assert image.format == output_format.upper()
    assert user_comment(image) == TEXT
    assert json.loads(image.getexif()[ExifTags.Base.ImageDescription]) == {**PARAMETERS, "seed": 9}


@pytest.mark.parametrize("output_format", ["png", "jpeg", "webp"])
def test_without_parameters_nothing_is_written(media: Media, output_format: str) -> None:
    image = decode(encode(media, output_format))
    assert not image.getexif()
    assert "parameters" not in image.info
    assert image.size == (24, 16)


@pytest.mark.parametrize(("length", "kept"), [(10_000, True), (40_000, False)])
def test_parameters_too_long_for_exif_are_left_out_and_the_picture_is_not(
    media: Media, length: int, kept: bool
) -> None:
    image = decode(encode(media, "jpeg", {"prompt": "夜" * length}))
    exif = image.getexif()
    assert ExifTags.Base.ImageDescription not in exif or length == 10_000
    assert (ExifTags.Base.UserComment in exif.get_ifd(ExifTags.IFD.Exif)) is kept


def test_nul_in_a_prompt_cannot_break_the_chunk(media: Media) -> None:
    image = decode(encode(media, "png", {"prompt": "a\0b"}))
    assert image.text["parameters"].startswith("a\ufffdb")
    assert json.loads(image.text["safelight"])["prompt"] == "a\0b"


def test_values_with_commas_are_quoted(media: Media) -> None:
    image = decode(encode(media, "png", {"prompt": "x", "model": "a, b"}))
    assert image.text["parameters"].endswith('Model: "a, b"')


def test_quality_changes_the_size(media: Media) -> None:
    assert len(encode(media, "jpeg", quality=20)) < len(encode(media, "jpeg", quality=95))


def test_formats() -> None:
    assert [content_type(name) for name in ("png", "jpeg", "webp")] == ["image/png", "image/jpeg", "image/webp"]
    with pytest.raises(ValueError, match="output_format must be one of png, jpeg, webp, gif, mp4, wav, flac"):
        content_type("bmp")

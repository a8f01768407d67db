"""Every kind of picture that people send: fixed pixels, or `InvalidImage`; never silent garbage, never much memory."""

from __future__ import annotations

import contextlib
import io
import random
import re
import struct
import warnings
import zlib
from typing import Any

import psutil
import pytest
from PIL import Image, ImageSequence

from tasks.decode import MAX_PIXELS, InvalidImage, LoadedImage, decode, fit, opacity
from tasks.errors import InvalidRequest

Pixel = tuple[int, ...] | int


def encoded(image: Image.Image, image_format: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, image_format, **options)
    return stream.getvalue()


def scene(size: tuple[int, int] = (48, 32)) -> Image.Image:
    """No two corners alike."""
    image = Image.new("RGB", size, (90, 90, 90))
    half = (size[0] // 2, size[1] // 2)
    image.paste((250, 20, 20), (0, 0, *half))
    image.paste((20, 250, 20), (half[0], 0, size[0], half[1]))
    image.paste((20, 20, 250), (0, half[1], half[0], size[1]))
    return image


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG by hand: depths and transparency keys that Pillow does not write. `rows` is compressed here."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    middle = b"".join(chunk(name, body) for name, body in chunks)
    return b"\x89PNG\r\n\x1a\n" + header + middle + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def pixels(data: bytes, mode: Any = "RGB") -> list[Pixel]:
    image = decode(data, "image", mode).image
    assert image.mode == mode
    access = image.load()
    assert access is not None
    return [access[x, y] for y in range(image.height) for x in range(image.width)]


def told(data: bytes) -> str:
    return " ".join(decode(data, "image").warnings)


GREY16 = b"\0" + struct.pack(">4H", 0, 257, 32_768, 65_535)
_TURN = Image.Transpose
_HOW_STORED = {  # the stored picture for each orientation: what a camera held that way writes
    1: None,
    2: _TURN.FLIP_LEFT_RIGHT,
    3: _TURN.ROTATE_180,
    4: _TURN.FLIP_TOP_BOTTOM,
    5: _TURN.TRANSPOSE,
    6: _TURN.ROTATE_90,
    7: _TURN.TRANSVERSE,
    8: _TURN.ROTATE_270,
}


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_all_orientations_of_a_photo_give_the_same_pixels(orientation: int, image_format: str) -> None:
    turn = _HOW_STORED[orientation]
    stored = scene() if turn is None else scene().transpose(turn)
    exif = Image.Exif()
    exif[274] = orientation
    options: dict[str, Any] = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True}}.get(
        image_format, {}
    )
    loaded = decode(encoded(stored, image_format, exif=exif, **options), "image")
    assert loaded.image.size == (48, 32)
    for corner in ((2, 2), (45, 2), (2, 29), (45, 29)):
        found, wanted = loaded.image.getpixel(corner), scene().getpixel(corner)
        assert isinstance(found, tuple) and isinstance(wanted, tuple)
        assert max(abs(a - b) for a, b in zip(found, wanted, strict=True)) <= 4
    assert bool(loaded.warnings) is (orientation != 1)
    assert not loaded.warnings or "EXIF orientation" in loaded.warnings[0]


def test_a_photo_with_damaged_exif_is_taken_as_it_is() -> None:
    data = encoded(scene(), "PNG", exif=b"Exif\0\0MM\0*\0\0\0\xff\xff")
    assert decode(data, "image").image.size == (48, 32)


@pytest.mark.parametrize(
    ("data", "expected", "warning"),
    [
        pytest.param(encoded(Image.new("1", (1, 1), 1), "PNG"), [(255, 255, 255)], "", id="1"),
        pytest.param(encoded(Image.new("L", (1, 1), 77), "PNG"), [(77, 77, 77)], "", id="L"),
        pytest.param(encoded(Image.new("RGB", (1, 1), (1, 2, 3)), "BMP"), [(1, 2, 3)], "", id="RGB-BMP"),
        pytest.param(encoded(Image.new("P", (1, 1), 0), "GIF"), [(0, 0, 0)], "", id="P-GIF"),
        pytest.param(encoded(Image.new("RGBA", (1, 1), (9, 9, 9, 255)), "PNG"), [(9, 9, 9)], "", id="opaque"),
        pytest.param(
            encoded(Image.new("RGBA", (1, 1), (200, 0, 0, 0)), "PNG"),
            [(255, 255, 255)],
            "transparency",
            id="hidden-RGB",
        ),
        pytest.param(
            encoded(Image.new("RGBA", (1, 1), (200, 0, 100, 128)), "PNG"), [(227, 127, 177)], "transparency", id="half"
        ),
        pytest.param(
            encoded(Image.new("RGBA", (1, 1), (200, 0, 0, 0)), "WEBP", lossless=True, exact=True),
            [(255, 255, 255)],
            "transparency",
            id="RGBA-WEBP",
        ),
        pytest.param(encoded(Image.new("LA", (1, 1), (0, 0)), "PNG"), [(255, 255, 255)], "transparency", id="LA"),
        pytest.param(
            png(2, 1, 8, 3, b"\0\0\1", (b"PLTE", bytes(range(6))), (b"tRNS", b"\0")),
            [(255,) * 3, (3, 4, 5)],
            "transparency",
            id="P+tRNS",
        ),
        pytest.param(
            encoded(Image.new("P", (1, 1), 3), "GIF", transparency=3),
            [(255, 255, 255)],
            "transparency",
            id="P-GIF-alpha",
        ),
        pytest.param(
            png(2, 1, 8, 0, b"\0\x05\x06", (b"tRNS", b"\0\x05")), [(255,) * 3, (6,) * 3], "transparency", id="L+tRNS"
        ),
        pytest.param(
            png(4, 1, 2, 0, b"\0\x1b", (b"tRNS", b"\0\x02")),
            [(0,) * 3, (85,) * 3, (255,) * 3, (255,) * 3],
            "transparency",
            id="2-bit+tRNS",
        ),
        pytest.param(
            png(2, 1, 1, 0, b"\0\x40", (b"tRNS", b"\0\0")), [(255,) * 3, (255,) * 3], "transparency", id="1-bit+tRNS"
        ),
        pytest.param(
            png(2, 1, 8, 2, b"\0\1\2\3\1\2\4", (b"tRNS", b"\0\1\0\2\0\3")),
            [(255,) * 3, (1, 2, 4)],
            "transparency",
            id="RGB+tRNS",
        ),
        pytest.param(png(4, 1, 16, 0, GREY16), [(0,) * 3, (1,) * 3, (128,) * 3, (255,) * 3], "16 bits", id="I;16-PNG"),
        pytest.param(
            png(4, 1, 16, 0, GREY16, (b"tRNS", b"\x80\x00")),
            [(0,) * 3, (1,) * 3, (255,) * 3, (255,) * 3],
            "16 bits .*transparency",
            id="I;16+tRNS",
        ),
        pytest.param(
            png(1, 1, 16, 2, b"\0" + struct.pack(">3H", 0, 32_896, 65_535)), [(0, 128, 255)], "16 bits", id="RGB16"
        ),
        pytest.param(
            png(1, 1, 16, 6, b"\0" + struct.pack(">4H", 0, 0, 0, 0)),
            [(255,) * 3],
            "16 bits .*transparency",
            id="RGBA16",
        ),
        pytest.param(
            encoded(Image.frombytes("I;16", (2, 1), struct.pack("<2H", 65_535, 25_700)), "TIFF"),
            [(255,) * 3, (100,) * 3],
            "16 bits",
            id="I;16-TIFF",
        ),
        pytest.param(
            encoded(Image.new("CMYK", (1, 1), (0, 255, 255, 0)), "TIFF"), [(255, 0, 0)], "CMYK", id="CMYK-TIFF"
        ),
    ],
)
def test_every_mode_has_fixed_pixels(data: bytes, expected: list[Pixel], warning: str) -> None:
    assert pixels(data) == expected
    if warning:
        assert re.search(warning, told(data))
    else:
        assert not told(data)


@pytest.mark.parametrize("transform", [0, 2], ids=["CMYK", "YCCK"])
def test_a_printers_jpeg_is_not_inverted(transform: int) -> None:
    data = bytearray(encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=100))
    if transform:  # the same samples, declared as YCCK: other colours, the same care
        data[data.index(b"Adobe") + 11] = 2
        cmyk = Image.open(io.BytesIO(bytes(data))).convert("RGB").getpixel((8, 8))
        assert pixels(bytes(data))[8 * 16 + 8] == cmyk
        return
    found = pixels(bytes(data))[8 * 16 + 8]
    assert isinstance(found, tuple)
    assert max(abs(a - b) for a, b in zip(found, (255, 0, 0), strict=True)) <= 4
    assert "CMYK" in told(bytes(data))


@pytest.mark.parametrize("image_format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_of_an_animation(image_format: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    options: dict[str, Any] = {"WEBP": {"lossless": True}}.get(image_format, {})
    data = encoded(frames[0], image_format, save_all=True, append_images=frames[1:], **options)
    assert len(list(ImageSequence.Iterator(Image.open(io.BytesIO(data))))) == 3
    assert set(pixels(data)) == {(255, 0, 0)}
    assert "first one" in told(data)


def test_masks_are_grey() -> None:
    assert pixels(encoded(Image.new("RGB", (1, 1), (255, 255, 255)), "PNG"), "L") == [255]
    assert pixels(encoded(Image.new("RGBA", (1, 1), (0, 0, 0, 255)), "PNG"), "L") == [0]


@pytest.mark.parametrize("mode", ["F", "I"])
def test_samples_without_a_known_range_are_refused(mode: str) -> None:
    with pytest.raises(InvalidImage, match="32-bit"):
        decode(encoded(Image.new(mode, (2, 2), 70_000), "TIFF"), "image")


class TestFit:
    def test_the_right_size_is_left_alone(self) -> None:
        loaded = LoadedImage(scene())
        assert fit(loaded, 48, 32) is loaded

    def test_another_size_is_told(self) -> None:
        assert fit(LoadedImage(scene(), ("a",)), 96, 64).warnings == ("a", "image resized from 48x32 to 96x64")
        fitted = fit(LoadedImage(scene()), 64, 64, "mask_image")
        assert fitted.image.size == (64, 64)
        assert fitted.warnings == ("mask_image resized from 48x32 to 64x64, which changes its aspect ratio",)


def refuse_flat(data: bytes, words: str) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with pytest.raises(InvalidImage, match=words) as caught:
            decode(data, "image")
    assert process.memory_info().rss - before < 24 * 1024 * 1024
    assert isinstance(caught.value, InvalidRequest) and caught.value.error_type == "invalid_image"
    assert caught.value.field == "image"


class TestBombs:
    """A small file must not become much memory: sizes are read from headers, before anything is decoded."""

    @pytest.mark.parametrize("size", [(20_000, 20_000), (9_000, 9_000), (MAX_PIXELS + 1, 1), (2**31 - 1, 2**31 - 1)])
    def test_png(self, size: tuple[int, int]) -> None:
        row = b"\0" * (min(size[0], 20_000) // 8 + 1)
        refuse_flat(png(*size, 1, 0, row * min(size[1], 20_000)), "pixels|damaged")

    def test_webp_canvas(self) -> None:
        body = b"VP8X" + struct.pack("<I", 10) + b"\x12\0\0\0" + b"\xfe\x3f\0" * 2
        body += b"ANIM" + struct.pack("<I", 6) + bytes(6)
        refuse_flat(b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body, "pixels|not a picture|damaged")

    def test_gif_and_bmp_and_jpeg_headers(self) -> None:
        gif = bytearray(encoded(Image.new("L", (4, 4)), "GIF"))
        gif[6:10] = struct.pack("<2H", 65_535, 65_535)
        refuse_flat(bytes(gif), "pixels")
        bmp = bytearray(encoded(Image.new("RGB", (4, 4)), "BMP"))
        bmp[18:26] = struct.pack("<2i", 30_000, 30_000)
        refuse_flat(bytes(bmp), "pixels")
        jpeg = bytearray(encoded(Image.new("RGB", (16, 16)), "JPEG"))
        at = jpeg.index(b"\xff\xc0") + 5
        jpeg[at : at + 4] = struct.pack(">2H", 65_000, 65_000)
        refuse_flat(bytes(jpeg), "pixels")

    def test_a_tiff_with_a_giant_tile(self) -> None:
        tags = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 322: 65_536, 323: 65_536, 324: 200, 325: 12}
        entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
        data = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
        refuse_flat(data.ljust(200, b"\0") + zlib.compress(bytes(256)), "at most .* pixels")

    def test_compressed_text_in_a_png(self) -> None:
        text = b"k\0\0" + zlib.compress(bytes(64 * 1024 * 1024))
        data = png(1, 1, 8, 0, b"\0\0", *[(b"zTXt", text)] * 3)
        process = psutil.Process()
        before = process.memory_info().rss
        with contextlib.suppress(InvalidImage):
            decode(data, "image")
        assert process.memory_info().rss - before < 64 * 1024 * 1024


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_half_a_file_is_refused(image_format: str) -> None:
    noise = Image.frombytes("RGB", (64, 64), random.Random(1).randbytes(64 * 64 * 3))
    data = encoded(noise, image_format)
    decode(data, "image")
    with pytest.raises(InvalidImage):
        decode(data[: len(data) // 2], "image")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GIF89a",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n",
        b"%PDF-1.4",
        bytes(4096),
    ],
)
def test_what_is_no_picture_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidImage):
        decode(data, "image")


def test_formats_that_run_programs_are_not_tried() -> None:
    eps = encoded(Image.new("RGB", (4, 4)), "EPS")
    with pytest.raises(InvalidImage, match="not a picture in one of"):
        decode(eps, "image")


@pytest.mark.parametrize("mode", ["RGB", "P", "L", "RGBA"])
def test_a_png_with_a_flipped_bit_is_refused_whether_it_has_exif_or_not(mode: str) -> None:
    """To ask a PNG for its EXIF data loads it; what was wrong with it was forgotten then."""
    noise = Image.frombytes("RGB", (64, 64), random.Random(1).randbytes(64 * 64 * 3)).convert(mode)
    for options in ({}, {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"}):
        data = bytearray(encoded(noise, "PNG", **options))
        decode(bytes(data), "image")
        data[data.index(b"IDAT") + 1000] ^= 1
        with pytest.raises(InvalidImage, match="damaged"):
            decode(bytes(data), "image")


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_opacity_is_the_alpha_channel(mode: str) -> None:
    image = Image.new(mode, (8, 4), 255 if mode == "L" else (255,) * len(mode))
    image.putpixel((3, 2), (0,) * len(mode))
    alpha = opacity(encoded(image, "PNG"), "mask")
    assert alpha is not None
    assert (alpha.mode, alpha.size, alpha.getpixel((3, 2)), alpha.getpixel((0, 0))) == ("L", (8, 4), 0, 255)
    assert opacity(encoded(image.convert("RGB"), "PNG"), "mask") is None
    with pytest.raises(InvalidImage, match="mask"):
        opacity(b"no picture", "mask")

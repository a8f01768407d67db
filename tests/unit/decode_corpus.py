"""A thousand damaged pictures, the same at each run, and what `tasks.decode` makes of them: `python -m` prints JSON.

In a process of its own: a decoder in C that crashes, or takes a machine's memory, must not take the tests along.
"""

from __future__ import annotations

import faulthandler
import io
import json
import random
import resource
import struct
import sys
import warnings
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from PIL import Image

from tasks.decode import InvalidImage, decode, opacity

#: Files of each kind; with the ten kinds, a thousand.
EACH = 100
SIZE = (48, 32)
_EXTREMES = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)


@dataclass
class Tally:
    """Of one kind. `wrong`: number of the file and what was not as it must be."""

    decoded: int = 0
    refused: int = 0
    not_a_picture: int = 0
    wrong: list[str] = field(default_factory=list)


def _scene(mode: str = "RGB") -> Image.Image:
    image = Image.frombytes("RGB", SIZE, random.Random(3).randbytes(SIZE[0] * SIZE[1] * 3))
    image.paste((250, 20, 20), (0, 0, SIZE[0] // 2, SIZE[1]))
    return image.convert(mode)


def _saved(image: Image.Image, image_format: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, image_format, **options)
    return stream.getvalue()


def originals() -> dict[str, bytes]:
    """A sound file of each kind, most of them turned by their EXIF data."""
    exif = Image.Exif()
    exif[274] = 6
    more: dict[str, Any] = {"save_all": True, "append_images": [Image.new("RGB", SIZE, "lime")] * 2}
    return {
        "png": _saved(_scene(), "PNG", exif=exif),
        "png palette": _saved(_scene("P"), "PNG", transparency=3),
        "jpeg": _saved(_scene(), "JPEG", exif=exif),
        "mpo": _saved(_scene(), "MPO", **more),
        "webp": _saved(_scene("RGBA"), "WEBP", exif=exif),
        "webp frames": _saved(_scene(), "WEBP", lossless=True, **more),
        "gif": _saved(_scene(), "GIF", **more),
        "bmp": _saved(_scene(), "BMP"),
        "tiff": _saved(_scene(), "TIFF", compression="tiff_lzw", exif=exif),
        "avif": _saved(_scene(), "AVIF"),
    }


def _place(data: bytearray, chance: random.Random) -> int:
    """Anywhere, or among the headers, where the structure is."""
    return chance.randrange(len(data) if chance.random() < 0.5 else min(len(data), 128))


def _flip(data: bytearray, chance: random.Random, _other: bytes) -> None:
    for _ in range(chance.randint(1, 6)):
        data[_place(data, chance)] ^= 1 << chance.randrange(8)


def _cut(data: bytearray, chance: random.Random, _other: bytes) -> None:
    del data[_place(data, chance) + 1 :]


def _splice(data: bytearray, chance: random.Random, other: bytes) -> None:
    start, at = chance.randrange(len(other)), _place(data, chance)
    data[at : at + chance.choice((0, 0, 8, 64))] = other[start : start + chance.randint(1, 256)]


def _length(data: bytearray, chance: random.Random, _other: bytes) -> None:
    """Numbers of two or four bytes that may be a length, a count, an offset or a size become extreme, or off by one."""
    for _ in range(chance.randint(1, 2)):
        kind = chance.choice(("<H", ">H", "<I", ">I"))
        width = struct.calcsize(kind)
        numbers = [at for at in range(len(data) - width) if struct.unpack_from(kind, data, at)[0] <= len(data)]
        if numbers:
            at = chance.choice(numbers[: len(numbers) // 4 + 1])
            (value,) = struct.unpack_from(kind, data, at)
            new = chance.choice((*_EXTREMES, value + 1, value - 1, value * 256))
            struct.pack_into(kind, data, at, new % 256**width)


MUTATIONS: tuple[Callable[[bytearray, random.Random, bytes], None], ...] = (_flip, _cut, _splice, _length)


def mutated(kind: str, number: int, files: dict[str, bytes]) -> bytes:
    """File `number` of that kind: each mutation in its turn, and several together in the second half."""
    chance = random.Random(f"{kind} {number}")
    data = bytearray(files[kind])
    other = files[chance.choice(sorted(files))]
    MUTATIONS[number % len(MUTATIONS)](data, chance, other)
    for _ in range(chance.randint(1, 3) if number >= EACH // 2 else 0):
        chance.choice(MUTATIONS)(data, chance, other)
    return _with_right_sums(bytes(data)) if number % 2 else bytes(data)


def _with_right_sums(data: bytes) -> bytes:
    """The chunks of a PNG with the sums that they should have, so that more than the sum is looked at."""
    at, out = 8, bytearray(data[:8])
    while data.startswith(b"\x89PNG") and at + 12 <= len(data):
        end = at + 8 + struct.unpack_from(">I", data, at)[0]
        if end + 4 > len(data):
            break
        out += data[at:end] + struct.pack(">I", zlib.crc32(data[at + 4 : end]))
        at = end + 4
    return bytes(out) + data[at:]


def _fault(data: bytes, tally: Tally) -> str | None:
    """What is wrong with how this file was met, if anything is."""
    try:
        loaded = decode(data, "image").image
    except InvalidImage as error:
        tally.refused += 1
        tally.not_a_picture += "is not a picture in one of these formats" in str(error)
        return None if error.error_type == "invalid_image" and len(str(error)) < 400 else f"refused with {error}"
    tally.decoded += 1
    with Image.open(io.BytesIO(data)) as plain:
        declared = plain.size
        plain.load()  # what Pillow by itself finds damaged, we do not take
    if loaded.mode != "RGB" or loaded.size not in (declared, declared[::-1]):
        return f"declared {declared}, decoded {loaded.mode} {loaded.size}"
    mask = decode(data, "mask_image", "L").image
    alpha = opacity(data, "mask_image")
    if mask.mode != "L" or mask.size != loaded.size or (alpha is not None and alpha.mode != "L"):
        return f"as a mask {mask.mode} {mask.size}, alpha {alpha}"
    return None


def _meet(kind: str, files: dict[str, bytes]) -> Tally:
    tally = Tally()
    for number in range(EACH):
        try:
            fault = _fault(mutated(kind, number, files), tally)
        except BaseException as error:
            fault = f"raised {type(error).__name__}: {error}"
        if fault is not None:
            tally.wrong.append(f"{number}: {fault}")
    return tally


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    faulthandler.enable()
    warnings.simplefilter("ignore")
    files = originals()
    for data in files.values():  # all that decoders load is loaded
        Image.open(io.BytesIO(data)).load()
    before = _peak_mib()
    tallies = {kind: asdict(_meet(kind, files)) for kind in files}
    json.dump({"kinds": tallies, "grown_mib": _peak_mib() - before}, sys.stdout)


if __name__ == "__main__":
    main()

"""Small files that want to be large: decoded in a process of its own, whose peak of memory is measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Above what making the bombs took; the smallest of them wants 256 MiB.
FLAT_MIB = 64

# All bombs are made, then decoded, in the child: the peak only grows, so the first one that goes off shows.
CHILD = r"""
import io, json, resource, struct, sys, time, warnings, zlib
from PIL import Image
from tasks.decode import InvalidImage, decode

warnings.simplefilter("ignore")
MIB = 1024 * 1024

def zeros(mib):
    packer = zlib.compressobj(1)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(mib)) + packer.flush()

def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

def png(width, height, *chunks, depth=8, colour=2, pixels=None):
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(b"\0\1\2\3") if pixels is None else pixels)
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunk(*each) for each in chunks) + data + chunk(b"IEND", b"")

def tiny(kind, **options):
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(stream, kind, **options)
    return stream.getvalue()

def riff(*chunks):
    body = b"WEBP" + b"".join(n + struct.pack("<I", len(b)) + b + b"\0" * (len(b) & 1) for n, b in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body

def frames(kind, count, size, **options):
    stream = io.BytesIO()
    first, *rest = (Image.new("L", size, number % 2) for number in range(count))
    first.save(stream, kind, save_all=True, append_images=rest, **options)
    return stream.getvalue()

def tiff(*tags):
    entries = b"".join(struct.pack("<HHII", tag, kind, count, value) for tag, kind, count, value in tags)
    return (b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)).ljust(4096, b"\0")

def long_gif(count):
    base = bytearray(tiny("GIF"))
    frame = base[base.index(b"\x2c"):-1]
    return bytes(base[:-1] + frame * count + b";")

big = zeros(256)
vp8x = lambda flags, w, h: (b"VP8X", bytes([flags, 0, 0, 0]) + b"".join((n - 1).to_bytes(3, "little") for n in (w, h)))
values = {256: 1, 257: 1, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 1}
sound = [(tag, 4, 1, value) for tag, value in values.items()]
bombs = {
    "png: pixels": png(40_000, 40_000, pixels=big),
    "png: more data than pixels": png(8, 8, pixels=big),
    "png: ICC": png(1, 1, (b"iCCP", b"n\0\0" + big)),
    "png: iTXt": png(1, 1, (b"iTXt", b"k\0\1\0\0\0" + big)),
    "png: zTXt, many": png(1, 1, *[(b"zTXt", b"k\0\0" + zeros(1))] * 300),
    "png: EXIF": png(1, 1, (b"eXIf", b"MM\0*\0\0\0\x08\xff\xff" + bytes(MIB))),
    "png: frames": png(8, 8, (b"acTL", struct.pack(">II", 2**31 - 1, 0)), pixels=zlib.compress(b"\0" * 200)),
    "png: cut": tiny("PNG")[:-30],
    "jpeg: EXIF count": tiny("JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\1\x01\x0e\0\2\x7f\xff\xff\xff\0\0\0\0"),
    "jpeg: ICC": tiny("JPEG", icc_profile=bytes(MIB)),
    "jpeg: pixels": tiny("JPEG").replace(struct.pack(">HH", 8, 8), struct.pack(">HH", 65_000, 65_000)),
    "gif: screen": b"GIF89a" + struct.pack("<HH", 65_535, 65_535) + tiny("GIF")[10:],
    "gif: frames": long_gif(100_000),
    "gif: large frames": frames("GIF", 6, (2_000, 2_000)),
    "webp: canvas": riff(vp8x(2, 16_383, 16_383), (b"ANIM", bytes(6)), (b"ANMF", bytes(16))),
    "webp: frames": frames("WEBP", 12, (1_500, 1_500), lossless=True),
    "webp: ICC": riff(vp8x(32, 8, 8), (b"ICCP", bytes(4 * MIB)), *[(b"VP8L", b"\x2f\x07\xc0\x01\0")]),
    "bmp: pixels": tiny("BMP")[:18] + struct.pack("<ii", 60_000, 60_000) + tiny("BMP")[26:],
    "bmp: run length": tiny("BMP")[:18] + struct.pack("<iiHHI", 32_000, 32_000, 1, 8, 1) + tiny("BMP")[34:],
    "tiff: pixels": tiff((256, 4, 1, 60_000), (257, 4, 1, 60_000), *sound[2:]),
    "tiff: count of a tag": tiff(*sound, (700, 1, 2**31 - 1, 64)),
    "tiff: strips": tiff(*sound[:5], (273, 4, 2**28, 8), *sound[6:8], (279, 4, 2**28, 8)),
    "tiff: deflate": tiff((256, 4, 1, 8), (257, 4, 1, 8), (258, 4, 1, 8), (259, 4, 1, 8), (262, 4, 1, 1),
        (273, 4, 1, 4096), (277, 4, 1, 1), (278, 4, 1, 8), (279, 4, 1, len(big))) + big,
    "tiff: loop": tiff(*sound)[:118] + struct.pack("<I", 8) + bytes(64),
}
del big

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

decode(tiny("PNG"), "image"), decode(tiny("TIFF"), "image"), decode(tiny("JPEG"), "image")
answers = {}
for name, data in bombs.items():
    before, began = peak(), time.process_time()
    try:
        outcome = "%dx%d" % decode(data, "image").image.size
    except InvalidImage as error:
        outcome = str(error)
    answers[name] = [outcome, peak() - before, round(time.process_time() - began, 2)]
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, tuple[str, int, float]]:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[str, int, float]] = json.loads(done.stdout)
    return found


def test_memory_stays_flat(answers: dict[str, tuple[str, int, float]]) -> None:
    grown = {name: mib for name, (_, mib, _) in answers.items() if mib > FLAT_MIB}
    assert not grown
    assert len(answers) == 24


def test_what_is_refused_is_refused_as_a_picture(answers: dict[str, tuple[str, int, float]]) -> None:
    decoded = {name: outcome for name, (outcome, _, _) in answers.items() if not outcome.startswith("image: ")}
    assert set(decoded) <= {
        "png: more data than pixels",
        "png: EXIF",
        "png: frames",
        "jpeg: EXIF count",
        "jpeg: ICC",
        "gif: frames",
        "gif: large frames",
        "webp: frames",
        "tiff: deflate",
        "tiff: loop",
        "tiff: count of a tag",
    }, "too large to be decoded"
    assert all(size in ("1x1", "8x8", "2000x2000", "1500x1500") for size in decoded.values())

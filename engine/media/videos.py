"""Videos as MP4 (H.264, by PyAV), animated WebP and GIF (by Pillow)."""

import io
import tempfile
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
from PIL import Image

from ..result import Media
from .parameters import container_tags, exif, parameters_json

#: x264's constant rate factor at quality 90, hard to tell from the original; 2.5 of quality are worth 1 of it
CRF_AT_90, QUALITY_PER_CRF, MAX_CRF = 18, 2.5, 51
#: the smallest unit of a frame's time, in ms
GIF_TICK_MS, WEBP_TICK_MS = 10, 1
BT709, LIMITED_RANGE = 1, 1


def encode_video(media: Media, output_format: str, parameters: Mapping[str, Any] | None, quality: int) -> bytes:
    if output_format == "mp4":
        return _mp4(media, parameters, quality)
    return _animation(media, output_format, parameters, quality)


def _mp4(media: Media, parameters: Mapping[str, Any] | None, quality: int) -> bytes:
    """4:2:0 as every player wants it, 4:4:4 where a side is odd. One thread: the device's has work to do."""
    assert media.size is not None
    width, height = media.size
    pixel_format = "yuv444p" if width % 2 or height % 2 else "yuv420p"
    crf = min(MAX_CRF, max(0, CRF_AT_90 + (90 - quality) / QUALITY_PER_CRF))
    # A file with a name: to move the index to the front, so that players can start early, FFmpeg opens it once more.
    with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
        _write_mp4(file.name, media, crf, pixel_format, container_tags(media, parameters, "description"))
        return Path(file.name).read_bytes()


def _write_mp4(path: str, media: Media, crf: float, pixel_format: str, tags: Mapping[str, str]) -> None:
    assert media.pixels is not None and media.fps is not None and media.size is not None
    with av.open(path, "w", format="mp4", options={"movflags": "+faststart"}) as container:
        container.metadata.update(tags)
        stream = container.add_stream(
            "libx264", rate=Fraction(media.fps).limit_denominator(1001), options={"crf": f"{crf:g}"}
        )
        (stream.width, stream.height), stream.pix_fmt = media.size, pixel_format
        context = stream.codec_context
        context.thread_count = 1
        context.colorspace = context.color_primaries = context.color_trc = BT709
        context.color_range = LIMITED_RANGE
        for pixels in media.pixels:
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            container.mux(
                stream.encode(frame.reformat(format=pixel_format, dst_colorspace=BT709, dst_color_range=LIMITED_RANGE))
            )
        container.mux(stream.encode(None))


def _animation(media: Media, output_format: str, parameters: Mapping[str, Any] | None, quality: int) -> bytes:
    """It repeats for ever. The times of the frames add up to the video's, whatever the format's tick rounds off."""
    assert media.pixels is not None and media.fps is not None
    first, *rest = (Image.fromarray(pixels) for pixels in media.pixels)
    if output_format == "gif":
        comment = b"" if parameters is None else parameters_json(media, parameters, ascii_only=True).encode()
        extra: dict[str, Any] = {"comment": comment}
    else:
        extra = {"quality": quality, "exif": exif(media, parameters)}
    tick_ms = GIF_TICK_MS if output_format == "gif" else WEBP_TICK_MS
    durations = frame_times_ms(len(media.pixels), media.fps, tick_ms)
    buffer = io.BytesIO()
    first.save(buffer, output_format, save_all=True, append_images=rest, duration=durations, loop=0, **extra)
    return buffer.getvalue()


def frame_times_ms(num_frames: int, fps: float, tick_ms: int) -> list[int]:
    """How long each frame is shown: multiples of the tick, at least one of it."""
    starts = [round(1000 * index / fps / tick_ms) * tick_ms for index in range(num_frames + 1)]
    return [max(tick_ms, end - start) for start, end in pairwise(starts)]

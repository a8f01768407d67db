"""Sounds as WAV and FLAC, 16 bits a sample, by PyAV."""

import io
from collections.abc import Mapping
from typing import Any

import av
import numpy as np
from av.audio.stream import AudioStream
from numpy.typing import NDArray

from ..result import Media
from .parameters import container_tags

CODECS = {"wav": "pcm_s16le", "flac": "flac"}
#: FFmpeg takes a FLAC's `description` for another `comment`; RIFF has no name for it
TEXT_TAGS = {"wav": None, "flac": "parameters"}
LAYOUTS = {1: "mono", 2: "stereo"}
FULL_SCALE = 32767


def encode_sound(media: Media, output_format: str, parameters: Mapping[str, Any] | None) -> bytes:
    """What is beyond full scale is clipped. More than two channels keep their order and have no names."""
    assert media.samples is not None and media.sample_rate is not None
    samples = sixteen_bits(media.samples)
    layout = LAYOUTS.get(samples.shape[1], f"{samples.shape[1]}c")
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=output_format) as container:
        container.metadata.update(container_tags(media, parameters, TEXT_TAGS[output_format]))
        stream = container.add_stream(CODECS[output_format], rate=media.sample_rate, layout=layout)
        assert isinstance(stream, AudioStream)
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout=layout)
        frame.sample_rate = media.sample_rate
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def sixteen_bits(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """`[samples, channels]`, the same shape."""
    return np.ascontiguousarray((samples.clip(-1.0, 1.0) * FULL_SCALE).round().astype(np.int16))

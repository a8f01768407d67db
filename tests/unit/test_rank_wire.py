"""What crosses between an engine and its ranks comes out as it went in, and nothing else comes out."""

import socket
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from engine import (
    Checkpoint,
    Completed,
    DiffusionRequest,
    EngineConfig,
    Failed,
    InvalidRequest,
    Media,
    Metrics,
    Preview,
    RankError,
    SamplingParams,
)
from engine.checkpoint import RowState
from engine.executors.channel import Channel
from engine.executors.messages import WIRE, Answer, Begin, Said, Take, Told

PARAMS = SamplingParams(height=8, width=8, seed=2**63 - 1, loras=(("ink", 0.5),), negative_prompt="\u2603")
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda parts: st.lists(parts) | st.lists(parts).map(tuple) | st.dictionaries(st.text() | st.integers(), parts),
    max_leaves=12,
)


def through(value: Any) -> Any:
    head, *buffers = WIRE.pack(value)
    data = bytes(head)
    assert WIRE.sizes(data) == [memoryview(buffer).nbytes for buffer in buffers]
    return WIRE.unpack(data, [bytearray(buffer) for buffer in buffers])


@given(value=PLAIN)
@settings(max_examples=50, deadline=None)
def test_plain_data(value: Any) -> None:
    assert through(value) == value


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.float32).reshape(2, 3, 4)[:, ::2],
        np.zeros((0, 3), np.uint8),
        np.array(7, np.int64),
        np.array([np.nan, -0.0], np.float16),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
    ],
)
def test_arrays_keep_bits_shape_and_type(array: np.ndarray) -> None:
    back = through(array)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()


def test_an_array_is_not_copied_on_either_side() -> None:
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    head, buffer = WIRE.pack(array)
    assert np.shares_memory(np.frombuffer(buffer, np.uint8), array)
    arrived = bytearray(buffer)
    assert np.shares_memory(WIRE.unpack(bytes(head), [arrived]), np.frombuffer(arrived, np.uint8))


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "RGBA", "I;16"])
def test_pictures_keep_mode_and_pixels(mode: str) -> None:
    picture = Image.new(mode, (5, 3), 1 if mode in ("1", "L", "I;16") else (1, 2, 3))
    back = through(picture)
    assert (back.mode, back.size, back.tobytes()) == (picture.mode, picture.size, picture.tobytes())


def test_a_picture_with_a_palette_keeps_its_colours() -> None:
    picture = Image.new("RGB", (2, 2), (9, 8, 7)).convert("P", palette=Image.Palette.ADAPTIVE)
    assert through(picture).convert("RGB").getpixel((0, 0)) == picture.convert("RGB").getpixel((0, 0))


def test_requests_events_and_checkpoints() -> None:
    state = {"latents": np.ones((1, 4), np.float32), "sigmas": (0.5, None), "nested": [{"a": 1}]}
    checkpoint = Checkpoint(
        "f", (RowState(1, 3, state),), {0: {"kind": "image", "pixels": np.zeros((1, 1, 3), np.uint8)}}
    )
    request = DiffusionRequest(
        request_id="a", prompt="p", params=PARAMS, image=Image.new("RGB", (2, 2)), resume=checkpoint
    )
    ((back, age_s),) = through(Take(((request, 1.5),))).requests
    assert (age_s, back.params, back.image.size) == (1.5, PARAMS, (2, 2))
    assert np.array_equal(back.resume.rows[0].state["latents"], state["latents"])
    assert back.resume.rows[0].state["sigmas"] == (0.5, None)
    assert list(back.resume.done) == [0]
    assert through(Begin(3, EngineConfig(model="m", loras={"ink": "x"}), 1.0, 20)).config.loras == {"ink": "x"}
    media = Media(seed=1, pixels=np.full((2, 2, 3), 7, np.uint8))
    metrics = Metrics(
        queue_ms=1, encode_ms=2, denoise_ms=3, decode_ms=4, total_ms=10, batch_rows_mean=1, device_seconds=1
    )
    told = through(Said(4, Told("a#1", Completed("a", (media,), metrics, ("w",)))))
    assert (told.epoch, told.report.event.metrics, told.report.event.warnings) == (4, metrics, ("w",))
    assert np.array_equal(told.report.event.media[0].pixels, media.pixels)
    assert through(Told("a#1", Failed("a", "internal", "m", traceback="t"))).event.traceback == "t"
    assert through(Told("a#1", Preview("a", 2, Image.new("RGB", (1, 1))))).event.step == 2


def test_an_error_arrives_as_itself_or_says_what_it_was() -> None:
    class Strange(Exception):
        pass

    known, strange = through(Answer(1, error=InvalidRequest("no"))).error, through(Strange("odd"))
    assert type(known) is InvalidRequest and str(known) == "no"
    assert type(strange) is RankError and str(strange) == "Strange: odd"


@pytest.mark.parametrize("value", [object(), lambda: 0, np.array([object()]), {"a": {1: print}}, 1j, type])
def test_nothing_else_is_sent(value: object) -> None:
    with pytest.raises(TypeError, match="cannot go to or come from a rank"):
        WIRE.pack(value)


@pytest.mark.parametrize(
    "body", ['{"record":"os.system","fields":[]}', '{"call":"print"}', '{"record":"Aborted","fields":[1]}']
)
def test_nothing_else_is_read(body: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        WIRE.unpack(f'{{"body":{body},"sizes":[]}}'.encode(), [])


def test_a_channel_carries_small_and_large_and_ends() -> None:
    ours, theirs = socket.socketpair()
    here, there = Channel(ours), Channel(theirs)
    frames = np.arange(3_000_000, dtype=np.uint32)
    here.post(Said(1, Answer(1, value="small")))
    here.post(Said(1, Answer(2, value=frames)))
    assert there.receive().report.value == "small"
    assert np.array_equal(there.receive().report.value, frames)
    here.flush(10.0)
    here.close()
    with pytest.raises(EOFError):
        there.receive()
    there.close()

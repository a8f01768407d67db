"""engine.media for video and sound: what is decoded again is what went in, as far as the format allows."""

import io
import json
from typing import Any

import av
import numpy as np
import pytest
from PIL import ExifTags, Image

from engine import Media
from engine.media import content_type, encode
from engine.media.videos import frame_times_ms

PARAMETERS = {"prompt": "ein Häuschen, 夜 🙂\0", "num_inference_steps": 20, "model": "tiny", "seed": 1}
NUM_FRAMES, WIDTH, HEIGHT = 9, 64, 48


def clip(fps: float = 16, width: int = WIDTH, height: int = HEIGHT, num_frames: int = NUM_FRAMES) -> Media:
    """Colours that drift, and a white bar that moves to the right."""
    y, x = np.mgrid[0:height, 0:width]
    frames = [np.stack([x * 3 % 256, y * 4 % 256, np.full_like(x, 20 * t % 256)], axis=-1) for t in range(num_frames)]
    pixels = np.stack(frames).astype(np.uint8)
    for t in range(num_frames):
        pixels[t, :, 4 * t : 4 * t + 4] = 255
    return Media(kind="video", pixels=pixels, fps=fps, seed=9)


def tone(channels: int = 2, sample_rate: int = 8000, seconds: float = 0.5) -> Media:
    t = np.arange(int(sample_rate * seconds)) / sample_rate
    samples = np.stack([0.5 * np.sin(2 * np.pi * 440 * (k + 1) * t) for k in range(channels)], axis=1)
    return Media(kind="audio", samples=samples.astype(np.float32), sample_rate=sample_rate, seed=9)


def decoded_mp4(data: bytes) -> tuple[np.ndarray[Any, Any], Any]:
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.video[0]
        facts = {
            "rate": stream.average_rate,
            "seconds": float(stream.duration * stream.time_base),
            "format": stream.codec_context.pix_fmt,
            "codec": stream.codec_context.name,
            "colorspace": stream.codec_context.colorspace,
            "tags": dict(container.metadata),
        }
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]), facts


def decoded_sound(data: bytes) -> tuple[np.ndarray[Any, Any], Any]:
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.audio[0]
        blocks = [frame.to_ndarray() for frame in container.decode(stream)]
        channels = stream.codec_context.channels
        samples = np.concatenate([block.reshape(-1, channels) for block in blocks])
        return samples, {"rate": stream.codec_context.sample_rate, "tags": dict(container.metadata)}


def frames_of(data: bytes) -> tuple[np.ndarray[Any, Any], list[int], Image.Image]:
    image = Image.open(io.BytesIO(data))
    frames, times = [], []
    for index in range(image.n_frames):
        image.seek(index)
        image.load()
        times.append(image.info["duration"])
        frames.append(np.asarray(image.convert("RGB")))
    return np.stack(frames), times, image


def mean_difference(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any] | None) -> float:
    assert other is not None and one.shape == other.shape
    return float(np.abs(one.astype(float) - other.astype(float)).mean())


class TestVideo:
    @pytest.mark.parametrize("fps", [16, 24, 29.97, 7.5])
    def test_mp4_has_the_frames_the_rate_and_the_colours(self, fps: float) -> None:
        media = clip(fps)
        frames, facts = decoded_mp4(encode(media, "mp4"))
        assert mean_difference(frames, media.pixels) < 6
        assert (facts["codec"], facts["format"]) == ("h264", "yuv420p")
        assert float(facts["rate"]) == pytest.approx(fps, rel=1e-3)
        assert media.duration_s == pytest.approx(NUM_FRAMES / fps)
        assert facts["seconds"] == pytest.approx(media.duration_s, abs=1e-2)

    def test_mp4_says_the_colour_space_that_it_uses(self) -> None:
        """Untagged, a player guesses by the size, and reds turn orange."""
        pixels = np.zeros((4, 64, 64, 3), np.uint8)
        pixels[..., 0] = 255
        frames, facts = decoded_mp4(encode(Media(kind="video", pixels=pixels, fps=8.0, seed=0), "mp4"))
        assert facts["colorspace"] == 1
        assert np.abs(frames.astype(int) - pixels).max() <= 6

    def test_mp4_can_be_played_while_it_is_fetched(self) -> None:
        data = encode(clip(), "mp4")
        assert data.index(b"moov") < data.index(b"mdat")

    def test_mp4_of_odd_sides(self) -> None:
        media = clip(width=33, height=17)
        frames, facts = decoded_mp4(encode(media, "mp4"))
        assert facts["format"] == "yuv444p"
        assert mean_difference(frames, media.pixels) < 6

    def test_mp4_of_one_frame(self) -> None:
        frames, _ = decoded_mp4(encode(clip(num_frames=1), "mp4"))
        assert frames.shape == (1, HEIGHT, WIDTH, 3)

    def test_mp4_carries_its_parameters(self) -> None:
        _, facts = decoded_mp4(encode(clip(), "mp4", PARAMETERS))
        assert json.loads(facts["tags"]["comment"]) == {**PARAMETERS, "seed": 9}
        assert facts["tags"]["description"].endswith("Steps: 20, Seed: 9, Size: 64x48, Frames: 9, FPS: 16, Model: tiny")

    def test_quality_changes_the_size(self) -> None:
        for output_format in ("mp4", "webp"):
            assert len(encode(clip(), output_format, quality=20)) < len(encode(clip(), output_format, quality=95))

    @pytest.mark.parametrize(("output_format", "tolerance"), [("webp", 6), ("gif", 14)])
    def test_animations_have_the_frames_and_the_time(self, output_format: str, tolerance: float) -> None:
        media = clip(16)
        frames, times, image = frames_of(encode(media, output_format))
        assert mean_difference(frames, media.pixels) < tolerance
        assert image.info["loop"] == 0
        assert sum(times) == pytest.approx(1000 * NUM_FRAMES / 16, abs=10)

    def test_animations_carry_their_parameters(self) -> None:
        _, _, gif = frames_of(encode(clip(), "gif", PARAMETERS))
        assert json.loads(gif.info["comment"]) == {**PARAMETERS, "seed": 9}
        _, _, webp = frames_of(encode(clip(), "webp", PARAMETERS))
        assert json.loads(webp.getexif()[ExifTags.Base.ImageDescription]) == {**PARAMETERS, "seed": 9}

    def test_without_parameters_nothing_is_written(self) -> None:
        _, facts = decoded_mp4(encode(clip(), "mp4"))
        assert not {"comment", "description"} & facts["tags"].keys()
        _, _, gif = frames_of(encode(clip(), "gif"))
        assert not gif.info.get("comment")

    @pytest.mark.parametrize(("num_frames", "fps", "tick_ms"), [(81, 16, 10), (50, 29.97, 10), (33, 24, 1)])
    def test_rounding_of_times_does_not_add_up(self, num_frames: int, fps: float, tick_ms: int) -> None:
        times = frame_times_ms(num_frames, fps, tick_ms)
        assert len(times) == num_frames
        assert all(time >= tick_ms and time % tick_ms == 0 for time in times)
        assert abs(sum(times) - 1000 * num_frames / fps) <= tick_ms

    def test_a_frame_is_shown_for_a_tick_at_least(self) -> None:
        """Players slow down or skip frames that take no time."""
        assert frame_times_ms(3, 240, 10) == [10, 10, 10]


class TestSound:
    @pytest.mark.parametrize("output_format", ["wav", "flac"])
    @pytest.mark.parametrize(("channels", "sample_rate"), [(1, 16_000), (2, 44_100), (2, 8_000), (3, 48_000)])
    def test_every_sample_survives(self, output_format: str, channels: int, sample_rate: int) -> None:
        media = tone(channels, sample_rate)
        samples, facts = decoded_sound(encode(media, output_format))
        assert samples.shape == (sample_rate // 2, channels)
        assert facts["rate"] == sample_rate
        assert media.samples is not None
        assert np.abs(samples / 32767 - media.samples).max() < 1 / 32767

    @pytest.mark.parametrize("output_format", ["wav", "flac"])
    def test_what_is_too_loud_is_clipped_and_does_not_wrap(self, output_format: str) -> None:
        media = Media(
            kind="audio", samples=np.array([[2.0], [-2.0], [0.0]] * 100, np.float32), sample_rate=8000, seed=0
        )
        samples, _ = decoded_sound(encode(media, output_format))
        assert samples[:3].ravel().tolist() == [32767, -32767, 0]

    def test_parameters(self) -> None:
        _, facts = decoded_sound(encode(tone(), "flac", PARAMETERS))
        tags = {name.lower(): value for name, value in facts["tags"].items()}
        assert json.loads(tags["comment"]) == {**PARAMETERS, "seed": 9}
        assert "Steps: 20, Seed: 9, Model: tiny" in tags["parameters"]
        _, facts = decoded_sound(encode(tone(), "wav", PARAMETERS))
        assert json.loads(facts["tags"]["comment"]) == {**PARAMETERS, "seed": 9}


def test_facts() -> None:
    assert (clip().size, clip().num_frames, clip().duration_s) == ((WIDTH, HEIGHT), NUM_FRAMES, NUM_FRAMES / 16)
    assert (tone().size, tone().num_frames, tone().duration_s) == (None, None, 0.5)


def test_each_kind_has_its_formats() -> None:
    with pytest.raises(ValueError, match="wav is not for video; use mp4, webp, gif"):
        encode(clip(), "wav")
    with pytest.raises(ValueError, match="mp4 is not for audio; use wav, flac"):
        encode(tone(), "mp4")
    types = [content_type(name) for name in ("mp4", "gif", "wav", "flac")]
    assert types == ["video/mp4", "image/gif", "audio/wav", "audio/flac"]


def test_media_hold_what_their_kind_says() -> None:
    with pytest.raises(AssertionError):
        Media(kind="video", pixels=np.zeros((1, 8, 8, 3), np.uint8), seed=0)

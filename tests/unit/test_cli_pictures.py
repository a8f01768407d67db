"""Pictures as terminals take them: the bytes of a tiny one, and which terminal gets which."""

from __future__ import annotations

import base64
import io
import re

import pytest
from PIL import Image

from tasks.cli.pictures import encode
from tasks.cli.pictures.terminal import Protocol, protocol_of
from tasks.cli.pictures.thumb import decoded, fitted, of_data_uri, strip, thumb_of

TINY = Image.new("RGB", (2, 2))
TINY.putdata([(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)])


def png_of(text: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB")


def test_half_blocks() -> None:
    assert list(encode.half_blocks(TINY)) == [
        "\x1b[38;2;255;0;0;48;2;0;0;255m▀\x1b[38;2;0;255;0;48;2;255;255;255m▀\x1b[0m"
    ]
    plain = Image.new("RGB", (3, 1), (1, 2, 3))
    assert list(encode.half_blocks(plain)) == ["\x1b[38;2;1;2;3;48;2;1;2;3m▀▀▀\x1b[0m"]


def test_sixel() -> None:
    assert encode.sixel(TINY) == (
        '\x1bPq"1;1;2;2#0;2;100;100;100#1;2;0;100;0#2;2;100;0;0#3;2;0;0;100#0?A$#1?@$#2@?$#3A?\x1b\\'
    )
    assert encode.sixel(Image.new("RGB", (9, 7))) == '\x1bPq"1;1;9;7#0;2;0;0;0#0!9~-#0!9@\x1b\\'


def test_kitty_sends_the_picture_once_and_places_it() -> None:
    sent = encode.kitty(TINY, 7)
    match = re.fullmatch(r"\x1b_Ga=t,f=100,t=d,i=7,q=2,m=0;([A-Za-z0-9+/=]+)\x1b\\", sent)
    assert match is not None
    assert png_of(match[1]).tobytes() == TINY.tobytes()
    assert encode.kitty_place(2, 1, 7) == "\x1b_Ga=p,i=7,p=1,c=2,r=1,C=1,q=2\x1b\\"


def test_kitty_takes_a_large_one_in_pieces() -> None:
    noise = Image.effect_noise((64, 64), 90).convert("RGB")
    commands = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", encode.kitty(noise, 1))
    assert len(commands) > 1
    assert [head.split(",")[-1] for head, _ in commands] == [*["m=1"] * (len(commands) - 1), "m=0"]
    assert all(len(body) <= 4_096 for _, body in commands)
    assert png_of("".join(body for _, body in commands)).tobytes() == noise.tobytes()


def test_iterm2() -> None:
    match = re.fullmatch(
        r"\x1b\]1337;File=inline=1;width=2;height=1;preserveAspectRatio=1:([A-Za-z0-9+/=]+)\x07",
        encode.iterm2(TINY, 2, 1),
    )
    assert match is not None
    assert png_of(match[1]).tobytes() == TINY.tobytes()


@pytest.mark.parametrize(
    ("env", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, Protocol.KITTY),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, Protocol.KITTY),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app", "COLORTERM": "truecolor"}, Protocol.ITERM2),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, Protocol.ITERM2),
        ({"TERM": "foot-extra"}, Protocol.SIXEL),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, Protocol.BLOCKS),
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1", "COLORTERM": "24bit"}, Protocol.BLOCKS),
        ({"TERM": "xterm-256color", "TMUX": "/tmp/x", "LC_TERMINAL": "iTerm2"}, None),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, None),
        ({"TERM": "xterm-kitty", "NO_COLOR": "1"}, None),
        ({}, None),
    ],
)
def test_which_terminal_gets_what(env: dict[str, str], protocol: Protocol | None) -> None:
    assert protocol_of(env) is protocol


@pytest.mark.parametrize(
    ("size", "place"), [((96, 96), (24, 12)), ((960, 96), (32, 2)), ((9, 9_000), (1, 12)), ((1, 1), (24, 12))]
)
def test_a_thumb_keeps_the_shape_and_fits(size: tuple[int, int], place: tuple[int, int]) -> None:
    assert fitted(*size, 32, 12) == place


@pytest.mark.parametrize("protocol", list(Protocol))
def test_room_is_made_before_a_picture_is_drawn(protocol: Protocol) -> None:
    """What is drawn never scrolls the screen: as many line ends as the picture has rows, and then back up."""
    thumb = thumb_of(TINY, protocol, 8, 3)
    text = thumb.shown()
    assert text.count("\n") == thumb.rows == 3
    if protocol is not Protocol.BLOCKS:
        assert text.startswith("\n\n\n")
        assert "\x1b7\x1b[3A\r" in text
        assert text.endswith("\x1b8")


def test_what_is_no_picture_is_left_alone() -> None:
    assert decoded(b"not really a picture") is None
    assert of_data_uri("data:image/jpeg;base64,%%%") is None
    assert of_data_uri("") is None


def test_several_stand_side_by_side() -> None:
    assert strip([TINY, Image.new("RGB", (8, 4))]).size == (6, 2)

"""What a terminal can show, told from its environment alone: asking it would take a reply, and some never send one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Protocol(StrEnum):
    #: sw.kovidgoyal.net/kitty/graphics-protocol
    KITTY = "kitty"
    #: iterm2.com/documentation-images.html
    ITERM2 = "iterm2"
    #: DEC's, as VT340 and its heirs draw it.
    SIXEL = "sixel"
    #: Two pixels a character, in 24-bit colours.
    BLOCKS = "blocks"


_KITTY_TERMS = ("xterm-kitty", "xterm-ghostty")
_ITERM2_PROGRAMS = ("iTerm.app", "WezTerm", "mintty")
_SIXEL_TERMS = ("foot", "mlterm", "contour")
_TRUECOLOUR = ("truecolor", "24bit")


def protocol_of(env: Mapping[str, str]) -> Protocol | None:
    """The best that the terminal of `env` is known for; None if it shows no picture, or the user wants no colours."""
    term, program = env.get("TERM", ""), env.get("TERM_PROGRAM", "")
    if term in ("", "dumb", "linux") or env.get("NO_COLOR"):
        return None
    # Multiplexers pass no graphics on unless they are told to, and keep the variables of the terminal around them.
    if not (env.get("TMUX") or env.get("STY") or term.startswith(("tmux", "screen"))):
        if term in _KITTY_TERMS or "KITTY_WINDOW_ID" in env:
            return Protocol.KITTY
        if program in _ITERM2_PROGRAMS or env.get("LC_TERMINAL") == "iTerm2":
            return Protocol.ITERM2
        if term.split("-")[0] in _SIXEL_TERMS:
            return Protocol.SIXEL
    return Protocol.BLOCKS if env.get("COLORTERM") in _TRUECOLOUR else None

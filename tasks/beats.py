"""What workers say of themselves, as who reads it needs it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Beat = Mapping[str, Any]
#: The part of its time to live after which a beat is late: others should have come since.
_LATE_PART = 0.5


def beats(reply: Sequence[tuple[str, int]]) -> list[Beat]:
    """From the script's answer: texts, and the ms after which each worker is given up."""
    return [aged(json.loads(info), left_ms) for info, left_ms in reply]


def aged(info: Beat, left_ms: int) -> Beat:
    """With `beat_age_s`, how long ago it was by the store's clock, if it tells for how long it counts."""
    if "ttl_s" not in info:
        return info
    return {**info, "beat_age_s": round(max(0.0, info["ttl_s"] - left_ms / 1000), 1)}


def serves(info: Beat) -> bool:
    """Whether a beat is of a worker that has its models; one that loads them beats too."""
    return info.get("state") != "starting"


def silent_s(info: Beat) -> float | None:
    """How long it has been silent, if that is longer than it should be: killed, stopped, or cut off from Redis."""
    age_s, ttl_s = info.get("beat_age_s"), info.get("ttl_s")
    if age_s is None or ttl_s is None or age_s < _LATE_PART * ttl_s:
        return None
    return float(age_s)


def state_of(info: Beat) -> str:
    """In words: what it said last, or that it says nothing any more."""
    late_s = silent_s(info)
    return str(info.get("state")) if late_s is None else f"silent for {late_s:.0f} s"

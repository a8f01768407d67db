"""Whether the models of one device can be served under a bound, all at a time or in turns. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Need:
    """What a model takes of its device; one to `keep` is never let go for another."""

    name: str
    bytes: int
    keep: bool = False


def misfit(needs: Sequence[Need], bound_bytes: int) -> str | None:
    """The first model that could never be loaded beside those that are kept, in words; None if each can."""
    for need in needs:
        kept = [other for other in needs if other.keep and other is not need]
        total = need.bytes + sum(other.bytes for other in kept)
        if total > bound_bytes:
            beside = f" with {', '.join(other.name for other in kept)}, which stays," if kept else ""
            return f"model {need.name}{beside} takes {-(-total // MIB)} MiB of {bound_bytes // MIB}"
    return None

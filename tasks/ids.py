"""Job ids: ULIDs (sortable by creation time), or whatever the client gave within the same alphabet."""

from __future__ import annotations

import re
import secrets
import time

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def new_job_id(now_ms: int | None = None) -> str:
    """A ULID: 48 bits of milliseconds and 80 random bits, 26 characters (github.com/ulid/spec)."""
    value = (int(time.time() * 1000) if now_ms is None else now_ms) << 80 | secrets.randbits(80)
    return "".join(_CROCKFORD[value >> shift & 31] for shift in range(125, -1, -5))


def is_job_id(text: str) -> bool:
    return JOB_ID.fullmatch(text) is not None

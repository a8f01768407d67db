"""The C allocator of a process with dozens of threads: two arenas, not eight a core, so that memory stays level."""

from __future__ import annotations

import ctypes
import os
import sys

_M_ARENA_MAX, _ARENAS = -8, 2  # malloc.h of glibc


def keep_arenas_few() -> None:
    """Before threads are started. Does nothing without glibc, or where the environment has its own wish."""
    if sys.platform.startswith("linux") and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, _ARENAS)

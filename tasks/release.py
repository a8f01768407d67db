"""Which release of Safelight this is."""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version


@functools.cache
def release() -> str:
    """As the installed package says; `unknown` in a checkout that was never installed."""
    try:
        return version("safelight")
    except PackageNotFoundError:
        return "unknown"

"""Outcomes that the device is done with and that are not made yet: what is left of them needs no device thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .adapter import Output, RowOutcome


class Pending:
    """One row's. `finish` may be called on any thread; whatever it raises is the outcome."""

    def __init__(self, make: Callable[[], Output]) -> None:
        self._make = make

    def finish(self) -> RowOutcome:
        try:
            return self._make()
        except Exception as error:
            return error

    def __reduce__(self) -> tuple[Any, ...]:
        """It goes to another process as what becomes of it."""
        return _itself, (self.finish(),)


def settled(outcome: RowOutcome | Pending) -> RowOutcome:
    """For whoever wants to wait for it here and now."""
    return outcome.finish() if isinstance(outcome, Pending) else outcome


def _itself(outcome: RowOutcome) -> RowOutcome:
    return outcome

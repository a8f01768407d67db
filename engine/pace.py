"""The least time that a step takes, as seen so far: to tell a request that cannot be done in time before it starts."""

from collections.abc import Hashable

from .batch_key import BatchKey


class Pace:
    """Fastest steps by footprint, in seconds. Written by the device thread alone."""

    def __init__(self) -> None:
        self._fastest_s: dict[Hashable, float] = {}

    def note(self, key: BatchKey, seconds: float) -> None:
        """A denoise step for rows like `key` took so long."""
        known = self._fastest_s.get(key.footprint)
        self._fastest_s[key.footprint] = seconds if known is None else min(known, seconds)

    def least_s(self, key: BatchKey) -> float:
        """No request of this key was or will be faster; 0 while nothing is known."""
        return key.num_steps * self._fastest_s.get(key.footprint, 0.0)

"""The least time that a step takes, as seen so far: to tell a request that cannot be done in time before it starts."""

from collections.abc import Hashable, Set

from .batch_key import BatchKey


class Pace:
    """Fastest steps by footprint, in seconds. Written by the device thread alone."""

    def __init__(self) -> None:
        self._fastest_s: dict[Hashable, float] = {}

    def note(self, key: BatchKey, seconds: float) -> None:
        """A denoise step for rows like `key` took so long."""
        self.note_footprints({key.footprint}, seconds)

    def note_footprints(self, footprints: Set[Hashable], seconds: float) -> None:
        """The same, for rows whose footprints are at hand."""
        for footprint in footprints:
            known = self._fastest_s.get(footprint)
            if known is None or seconds < known:
                self._fastest_s[footprint] = seconds

    def least_s(self, key: BatchKey) -> float:
        """No request of this key was or will be faster; 0 while nothing is known."""
        return key.num_steps * self._fastest_s.get(key.footprint, 0.0)

"""When a lost rank starts again, and when never. Pure: time is an argument."""

from dataclasses import dataclass

LONGEST_S = 60.0
#: A rank that has served for so long has proved itself: what went before does not count any more.
PROOF_S = 600.0


@dataclass(slots=True)
class Restarts:
    """Of one rank. The first restart in a row comes after `backoff_s`, each further one after twice as long."""

    backoff_s: float
    max_restarts: int
    in_a_row: int = 0

    def lost(self, served_s: float) -> float | None:
        """After how many seconds to start again, None: never. `served_s`: for how long it was of use."""
        if served_s >= PROOF_S:
            self.in_a_row = 0
        if self.in_a_row >= self.max_restarts:
            return None
        self.in_a_row += 1
        return min(LONGEST_S, self.backoff_s * 2.0 ** (self.in_a_row - 1))

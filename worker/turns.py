"""How soon the device's thread has its turn at the interpreter again.

Every operation of torch gives the interpreter's lock away while it runs, thousands of times a step. Where another
thread computes in Python meanwhile, as those that finish the last batch do, the lock comes back after the switch
interval: 5 ms by Python's default, in which a device starves. `bench.turns` counts the operations.
"""

from __future__ import annotations

import sys

SWITCH_S = 0.0001


def take_short_turns() -> None:
    """For the whole process, whatever threads it has."""
    sys.setswitchinterval(SWITCH_S)

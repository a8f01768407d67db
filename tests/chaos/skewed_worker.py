"""A worker whose wall clock is wrong by as many seconds as a file says, from one moment to the next.

`python -m tests.chaos.skewed_worker FILE`. Monotonic clocks stay right, as after a jump of a real system clock.
libfaketime also bends sleeps and waits, with its own faults, so Python's and botocore's clocks are replaced instead.
"""

from __future__ import annotations

import datetime
import os
import runpy
import sys
import time
from pathlib import Path


def _bend_clocks(file: Path) -> None:
    real_ns = time.time_ns

    def offset_s() -> int:
        try:
            return int(file.read_text("ascii"))
        except (OSError, ValueError):  # it is just being written
            return 0

    time.time_ns = lambda: real_ns() + offset_s() * 10**9
    time.time = lambda: time.time_ns() / 1e9

    import botocore.auth
    import botocore.compat

    def now(remove_tzinfo: bool = True) -> datetime.datetime:
        moment = datetime.datetime.fromtimestamp(time.time(), datetime.UTC)
        return moment.replace(tzinfo=None) if remove_tzinfo else moment

    botocore.compat.get_current_datetime = now
    botocore.auth.get_current_datetime = now


if __name__ == "__main__":
    _bend_clocks(Path(sys.argv.pop(1)))
    runpy.run_module("worker", run_name="__main__")
    os._exit(1)

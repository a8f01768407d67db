"""CPU time, and a fixed piece of Python to measure it by: in yardsticks, figures of two machines can be compared."""

from __future__ import annotations

import hashlib
import json
import time

import psutil

_RECORD = {"prompt": "a red boat at sunset, oil on canvas", "steps": 20, "sizes": [[96, 96]] * 4, "seed": 7}
_ROUNDS = 200


def yardstick_s() -> float:
    """CPU seconds of one yardstick now: JSON there and back and a digest, 200 times; the quickest of nine."""
    return min(_one() for _ in range(9))


def _one() -> float:
    began = time.process_time()
    for number in range(_ROUNDS):
        text = json.dumps(_RECORD | {"number": number}, sort_keys=True)
        hashlib.sha256(text.encode()).hexdigest()
        json.loads(text)
    return time.process_time() - began


def cpu_s(pid: int) -> float:
    """CPU seconds that a live process has used, its ended threads included, its children not."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)

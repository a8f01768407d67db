"""How many operations of torch a device's thread gets done while other threads of its process compute in Python.

python -m bench.turns [--seconds 1.5] [--rounds 3] [--quick]

Each small operation gives the interpreter's lock away, as those of a denoiser do. Both sides in turn: Python's switch
interval of 5 ms, and the worker's. The others' work is counted too: what they lose by it.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from dataclasses import dataclass

import torch

from bench.report import keep, options, say, spread
from worker.turns import SWITCH_S

PYTHONS_S = 0.005
BUSY = (1, 4, 8)
TOGETHER = 10


@dataclass(frozen=True, slots=True)
class Done:
    """A second of it: operations of the device's thread, and rounds of all others."""

    operations: float
    others: float


def compete(switch_s: float, busy: int, seconds: float) -> Done:
    stop, rounds = threading.Event(), [0] * busy

    def compute(number: int) -> None:
        while not stop.is_set():
            sum(range(200))
            rounds[number] += 1

    before = sys.getswitchinterval()
    sys.setswitchinterval(switch_s)
    threads = [threading.Thread(target=compute, args=(number,)) for number in range(busy)]
    try:
        for thread in threads:
            thread.start()
        operations = _operate(seconds)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)
    return Done(operations / seconds, sum(rounds) / seconds)


def _operate(seconds: float) -> int:
    latents, done, until = torch.zeros(64), 0, time.monotonic() + seconds
    with torch.inference_mode():
        while time.monotonic() < until:
            for _ in range(TOGETHER):
                torch.add(latents, latents)
            done += TOGETHER
    return done


def main() -> None:
    chosen = options(__doc__, seconds=(1.5, 0.5, "of each try"), rounds=(3, 1, "of each, the two intervals in turn"))
    torch.set_num_threads(1)
    rows, figures = [], {}
    for busy in BUSY:
        pairs = [
            (compete(PYTHONS_S, busy, chosen.seconds), compete(SWITCH_S, busy, chosen.seconds))
            for _ in range(chosen.rounds)
        ]
        gains = [ours.operations / theirs.operations for theirs, ours in pairs]
        losses = [ours.others / theirs.others for theirs, ours in pairs]
        plain = statistics.median(theirs.operations for theirs, _ in pairs)
        rows.append((busy, plain, spread(gains), spread(losses)))
        figures[f"turns: operations beside {busy} busy threads, ours / Python's"] = statistics.median(gains)
    head = ("busy threads", f"operations a second at {1000 * PYTHONS_S:.0f} ms", "ours / that", "the others' work")
    say(f"Small operations of torch at a switch interval of {1000 * SWITCH_S:g} ms, against Python's.", head, rows)
    keep(chosen.figures, figures)


if __name__ == "__main__":
    main()

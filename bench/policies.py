"""Table 8: scheduling policies on traces of arrivals, in the simulator, beside a bound that no policy can beat.

python -m bench.policies [--requests 400] [--quick]

The device takes 20 ms for a step and 8 ms more for each row of 512 x 512, at most 8 rows. Nothing is run: the result
is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.arrivals import TRACES, Arrival
from bench.report import keep, options, say
from bench.simulator import POLICIES, Device, Score, least_mean_s, least_p95_s, score

ANCHOR, _, STEPS = POLICIES


def trace_of(name: str, num: int, device: Device) -> list[Arrival]:
    """At its share of what the device does one by one with such requests."""
    make, load = TRACES[name]
    sample = make(num, 1.0)
    return make(num, load * num / sum(device.alone_s(one) for one in sample))


def scores(trace: Sequence[Arrival], device: Device) -> dict[str, Score]:
    return {name: score(trace, policy(trace, device)) for name, policy in POLICIES.items()}


def main() -> None:
    chosen = options(__doc__, requests=(400, 400, "in each trace"))
    device, rows, figures = Device(), list[tuple[object, ...]](), dict[str, float]()
    for name in TRACES:
        trace = trace_of(name, chosen.requests, device)
        found, best = scores(trace, device), (least_mean_s(trace, device), least_p95_s(trace, device))
        for policy, made in found.items():
            against = made.mean_s / found[ANCHOR].mean_s
            rows.append((name, policy, made.rows_per_wave, made.mean_s, made.p95_s, against, made.mean_s / best[0]))
        rows.append((name, "bound", "", *best, best[0] / found[ANCHOR].mean_s, 1.0))
        figures[f"policies: {name}: mean latency, ours / anchor"] = found[STEPS].mean_s / found[ANCHOR].mean_s
    head = ("trace", "policy", "rows a wave", "mean s", "p95 s", "mean / anchor", "mean / bound")
    say(f"{chosen.requests} requests a trace, {device.max_rows} rows.", head, rows)
    keep(chosen.figures, figures)


if __name__ == "__main__":
    main()

"""How far the figures of the last quick run are from those that are kept. It judges nothing: exit code 0 in any case.

python -m bench.drift [--keep] [--figures .local/bench/quick.json]

Kept are ratios and counts, no times, so that another machine may compare too. A machine that has other work to do
still bends them: what moved by less than a fifth is shown as noise.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from bench.report import say
from bench.suite import FIGURES

BASELINE = Path(__file__).parent / "baseline.json"
NOISE = 0.2


def drift(kept: Mapping[str, float], now: Mapping[str, float]) -> list[tuple[str, float | str, float | str, str]]:
    """Name, kept, now and the change of each figure; those that moved most come first."""
    rows: list[tuple[float, tuple[str, float | str, float | str, str]]] = []
    for name in sorted(kept.keys() | now.keys()):
        if name not in now:
            rows.append((0.0, (name, kept[name], "", "not measured")))
        elif name not in kept:
            rows.append((0.0, (name, "", now[name], "new")))
        else:
            change = _change(kept[name], now[name])
            rows.append((abs(change), (name, kept[name], now[name], told(change))))
    return [row for _, row in sorted(rows, key=lambda one: -one[0])]


def _change(kept: float, now: float) -> float:
    return now / kept - 1 if kept else float(now != kept)


def told(change: float) -> str:
    return "same" if abs(change) < 0.005 else f"{100 * change:+.0f} %" + (" (noise)" if abs(change) < NOISE else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="make them the ones that are kept")
    parser.add_argument("--figures", type=Path, default=FIGURES)
    options = parser.parse_args()
    if not options.figures.exists():
        parser.error(f"{options.figures} is not there; make bench-quick writes it")
    now = json.loads(options.figures.read_text("utf-8"))
    kept = json.loads(BASELINE.read_text("utf-8")) if BASELINE.exists() else {}
    say("Drift of the quick figures.", ("figure", "kept", "now", "change"), drift(kept, now))
    if options.keep:
        BASELINE.write_text(json.dumps(kept | now, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()

"""How a bench speaks: its options, Markdown tables, and figures that `bench.drift` compares with those of before."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path


def options(about: str | None, **defaults: tuple[object, object, str]) -> argparse.Namespace:
    """Parse the command line. `name=(full, quick, help)`: the default, and the one with `--quick`."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few of everything: shows that it runs, proves little")
    parser.add_argument("--figures", type=Path, metavar="FILE", help="write what `bench.drift` compares")
    for name, (full, quick, told) in defaults.items():
        text = f"{told} ({full}; quick: {quick})" if told else f"({full}; quick: {quick})"
        parser.add_argument("--" + name.replace("_", "-"), type=type(full), help=text)
    parsed = parser.parse_args()
    for name, (full, quick, _) in defaults.items():
        if getattr(parsed, name) is None:
            setattr(parsed, name, quick if parsed.quick else full)
    return parsed


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Markdown. Floats get three digits that count."""
    lines = [head, ["---"] * len(head), *([shown(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def shown(cell: object) -> str:
    if not isinstance(cell, float):
        return str(cell)
    if cell == 0 or abs(cell) >= 100:
        return f"{cell:.0f}"
    return f"{cell:.3g}" if abs(cell) < 1 else f"{cell:.2f}" if abs(cell) < 10 else f"{cell:.1f}"


def say(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n{title}\n\n{table(head, rows)}", flush=True)


def keep(path: Path | None, figures: Mapping[str, float]) -> None:
    """Add figures to those of a file. Nothing happens without one."""
    if path is None:
        return
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    rounded = {name: float(f"{value:.4g}") for name, value in figures.items()}
    path.write_text(json.dumps(known | rounded, indent=1, sort_keys=True) + "\n", "utf-8")


def spread(values: Sequence[float]) -> str:
    """Median and range."""
    return f"{shown(statistics.median(values))} [{shown(min(values))} to {shown(max(values))}]"


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them do not exceed: a measured one, not one between two."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]

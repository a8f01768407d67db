"""What `make bench` and `make bench-quick` run: the scripts of all tables, one after the other, with their commands.

python -m bench [--quick] [--only NAME …] [--figures FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FIGURES = Path(".local/bench/quick.json")


@dataclass(frozen=True, slots=True)
class Step:
    """One script of a table. `quick` None: left out of the quick run. `figures`: it takes `--figures`."""

    table: str
    module: str
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] | None = ("--quick",)
    figures: bool = True

    def arguments(self, is_quick: bool) -> tuple[str, ...] | None:
        return self.quick if is_quick else self.full


STEPS = (
    Step("Policies", "bench.policies"),
    Step("Start-up", "bench.startup"),
    Step("Growth", "bench.growth"),
    Step("Overhead", "bench.cost"),
    Step("Pipelining", "bench.pipelining"),
    Step("Turns", "bench.turns"),
    Step("Listeners", "bench.listeners"),
    Step("Scale", "bench.fleet"),
    Step("Memory", "bench.memory", ("--model", "costless", "--jobs", "10000", "--first", "1000"), None),
    Step("Memory", "bench.memory"),
    Step("Enqueue", "bench.enqueue", quick=("--singles", "50", "--many", "1000", "--rounds", "1"), figures=False),
    Step("Whole way", "bench.overhead", ("--mode", "request"), None, figures=False),
    Step("Batching", "bench.batching", ("--mode", "request", "--rounds", "1"), None, figures=False),
    Step("Modes", "bench.traces", ("--rounds", "2"), None, figures=False),
    Step("Peers", "bench.peers", figures=False),
)


def chosen_steps(names: Sequence[str]) -> list[Step]:
    """By table or module, in the suite's order; all without a name. Raises ValueError for a name of none."""
    known = {word for step in STEPS for word in (step.table.lower(), step.module.removeprefix("bench."))}
    for name in names:
        if name.lower() not in known:
            raise ValueError(f"{name}: there are {', '.join(sorted(known))}")
    wanted = {name.lower() for name in names}
    return [step for step in STEPS if not wanted or wanted & {step.table.lower(), step.module.removeprefix("bench.")}]


def is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few minutes; its figures are what bench.drift compares")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="tables or modules")
    parser.add_argument("--figures", type=Path, default=FIGURES, help=f"of the quick run ({FIGURES})")
    options = parser.parse_args()
    try:
        steps = chosen_steps(options.only)
    except ValueError as error:
        parser.error(str(error))
    if options.quick:
        options.figures.parent.mkdir(parents=True, exist_ok=True)
        if not options.only:
            options.figures.unlink(missing_ok=True)
    failed = [step.module for step in steps if not run(step, options.quick, options.figures)]
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run(step: Step, is_quick: bool, figures: Path) -> bool:
    """Whether it went well; one that has no part in this run does."""
    arguments = step.arguments(is_quick)
    if arguments is None or not is_there(step.module):
        return True
    words = ["-m", step.module, *arguments]
    print(f"\n## {step.table}\n\n`python {' '.join(words)}`", flush=True)
    began = time.monotonic()
    if is_quick and step.figures:
        words += ["--figures", str(figures)]
    code = subprocess.run([sys.executable, *words], check=False).returncode
    print(f"\n({time.monotonic() - began:.0f} s)", flush=True)
    return code == 0

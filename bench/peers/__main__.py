"""All tables beside peers, in Markdown for `bench/README.md`, and everything behind them in one file.

python -m bench.peers [--quick] [--json build/bench-peers.json] [--only load,abort,enqueue]

Each table has a command of its own with more choice: `bench.peers.load`, `bench.peers.abort`, `bench.peers.enqueue`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers import abort, enqueue, load
from bench.peers.systems import end_on_sigterm


@dataclass(frozen=True, slots=True)
class Part:
    """A table: its title, its module's `parse` and `run`, and what it is called with when time is short."""

    title: str
    parse: Callable[[Sequence[str]], argparse.Namespace]
    run: Callable[[argparse.Namespace], tuple[str, dict[str, Any]]]
    quick: Sequence[str]
    full: Sequence[str] = ()


QUICK_SYSTEMS = "safelight,celery,litserve"
PARTS = {
    "load": Part(
        "Throughput and latency under load",
        load.parse,
        load.run,
        ["--systems", QUICK_SYSTEMS, "--rates", "1.8", "--requests", "24"],
    ),
    "abort": Part(
        "Abort",
        abort.parse,
        abort.run,
        ["--systems", "safelight,celery", "--depths", "1,100", "--trials", "2", "--warm-ups", "4"],
    ),
    "enqueue": Part("Handing a job over", enqueue.parse, enqueue.run, ["--jobs", "300", "--rounds", "1"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three systems and few requests: shows that it runs")
    parser.add_argument("--only", default=",".join(PARTS), help="tables, comma-separated")
    parser.add_argument("--json", type=Path, default=Path("build/bench-peers.json"))
    options = parser.parse_args()
    end_on_sigterm()
    options.json.parent.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = json.loads(options.json.read_text("utf-8")) if options.json.exists() else {}
    for name in options.only.split(","):
        part = PARTS[name]
        arguments = list(part.quick if options.quick else part.full)
        print(f"{name}:", file=sys.stderr)
        text, record[name] = part.run(part.parse(arguments))
        record[name]["command"] = " ".join(["python -m", f"bench.peers.{name}", *arguments])
        options.json.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        print(f"### {part.title}\n\n`{record[name]['command']}`\n\n{text}\n", flush=True)


if __name__ == "__main__":
    main()

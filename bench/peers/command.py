"""What every table's command does in the end: run, print, and keep what is behind the table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from bench.peers.systems import end_on_sigterm


def show(options: argparse.Namespace, run: Callable[[argparse.Namespace], tuple[str, dict[str, Any]]]) -> None:
    """`run` gives the table as text, and all figures for `--json`."""
    end_on_sigterm()
    text, record = run(options)
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print(text)

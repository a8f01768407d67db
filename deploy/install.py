"""`pip install` for the Makefile: says what it is at and for how long, and repeats what pip said only if it failed.

pip alone is either silent for minutes or tells several hundred lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO
from urllib.parse import unquote

COMMAND = ("-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--no-color")
#: On a terminal one line that changes; in a log a new one, seldom.
TERMINAL_S, LOG_S = 1.0, 10.0
TAIL = 40
_CHOSEN = ("Collecting ", "Requirement already")
_FILE = re.compile(r"^ *(Downloading|Using cached|Processing) (\S+?)(?: \((.+)\))?$")


def doing(lines: Sequence[str]) -> str:
    """What pip is at, from the last of its lines that says so."""
    for line in reversed(lines):
        if names := re.match(r"^Installing collected packages: (.*)", line):
            return f"unpacking {len(names[1].split(','))} packages"
        if (file := _FILE.match(line)) and not file[2].endswith(".metadata"):
            word = "downloading" if file[1] == "Downloading" else "taking"
            return f"{word} {_package(file[2])}" + (f" ({file[3]})" if file[3] else "")
        if line.startswith(_CHOSEN):
            return f"choosing versions (so far {_num_packages(lines)})"
    return "asking the package index"


def _num_packages(lines: Sequence[str]) -> int:
    return sum(line.startswith(_CHOSEN) for line in lines)


def _package(path: str) -> str:
    """`torch 2.13.0+cpu` of a wheel's address or path."""
    file = unquote(path).rpartition("/")[2]
    name, _, rest = file.removesuffix(".tar.gz").partition("-")
    return f"{name} {rest.partition('-')[0]}".rstrip()


def verdict(lines: Sequence[str], code: int, seconds: float) -> str:
    """The last words: how many packages, or what pip said."""
    if code:
        return "\n".join([*lines[-TAIL:], f"pip failed after {seconds:.0f} s (exit code {code})"])
    done = next((line for line in reversed(lines) if line.startswith("Successfully installed ")), "")
    return f"installed {len(done.split()) - 2} packages in {seconds:.0f} s" if done else "all of it was there already"


def main(arguments: Sequence[str], out: IO[str]) -> int:
    began, lines = time.monotonic(), list[str]()
    pip = subprocess.Popen(
        [sys.executable, *COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert pip.stdout is not None
    reader = threading.Thread(target=_read, args=(pip.stdout, lines))
    reader.start()
    is_terminal = out.isatty()
    begin, end = ("\r\x1b[K", "") if is_terminal else ("", "\n")
    while pip.poll() is None:
        try:
            pip.wait(TERMINAL_S if is_terminal else LOG_S)
        except subprocess.TimeoutExpired:
            print(f"{begin}{time.monotonic() - began:5.0f} s  {doing(lines)}"[:100], end=end, file=out, flush=True)
    reader.join()
    print(f"{begin}{verdict(lines, pip.returncode, time.monotonic() - began)}", file=out, flush=True)
    return pip.returncode


def _read(stream: IO[str], lines: list[str]) -> None:
    lines.extend(line.rstrip("\n") for line in stream)  # one by one: the other thread sees each as it comes


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:], sys.stderr))
    except KeyboardInterrupt:  # pip has heard it too
        sys.exit(130)

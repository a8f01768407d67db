"""How findings look: a line a check under its area, wrapped on a terminal, whole in a pipe; and what is being asked."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.status import Status as Spinner
from rich.text import Text

from tasks.doctor.finding import Finding

_STYLES = {"ok": "green", "warn": "yellow", "FAIL": "bold red", "skipped": "bright_black"}
_STATUS, _NAME = 7, 13
_INDENT = 2 + _STATUS + 1 + _NAME + 1
_NARROWEST = 30
_ORDER = (("FAIL", "failure"), ("warn", "warning"), ("ok", "ok"), ("skipped", "skipped"))


class DoctorView:
    """A context manager around the examination. `quiet`: no lines on stdout, the spinner goes to stderr."""

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self._console = console or Console(stderr=quiet, highlight=False, emoji=False, markup=False)
        self._quiet = quiet
        self._area = ""
        self._spinner: Spinner | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._spinner is not None:
            self._spinner.stop()

    def tell(self, area: str) -> None:
        """This area begins."""
        if not self._console.is_terminal:
            return
        if self._spinner is None:
            self._spinner = self._console.status("", spinner_style="cyan")
            self._spinner.start()
        self._spinner.update(Text(f"asking: {area}", style="bright_black"))

    def show(self, finding: Finding) -> None:
        if self._quiet:
            return
        if finding.area != self._area:
            self._area = finding.area
            self._print(Text(finding.area, style="bold"))
        head = Text("  ").append(finding.status.ljust(_STATUS + 1), _STYLES[finding.status])
        name = finding.name if len(finding.name) <= _NAME else f"{finding.name}:"
        head.append(name.ljust(_NAME + 1))
        self._print(*self._block(head, finding.found, "bright_black" if finding.status == "skipped" else ""))
        if finding.remedy:
            self._print(*self._block(Text(" " * _INDENT), f"→ {finding.remedy}", "cyan"))

    def sum_up(self, findings: Sequence[Finding], taken_s: float) -> None:
        counts = Counter(finding.status for finding in findings)
        words = Text("\n")
        for status, noun in _ORDER:
            number = counts[status]  # type: ignore[index]
            if number:
                plural = "s" if number != 1 and noun in ("failure", "warning") else ""
                words.append(f"{number} {noun}{plural}", _STYLES[status]).append(", ")
        self._print(words.append(f"in {taken_s:.1f} s"))

    def _block(self, head: Text, text: str, style: str) -> list[Text]:
        """`text` beside `head`, its further lines below its first."""
        width = self._console.width - _INDENT
        if not self._console.is_terminal or width < _NARROWEST:
            return [head.append(text, style)]
        lines = textwrap.wrap(
            text,
            width,
            initial_indent=" " * max(0, head.cell_len - _INDENT),
            break_long_words=False,
            break_on_hyphens=False,
        )
        rows = [head.append(lines[0].lstrip(), style)] if lines else [head]
        return rows + [Text(" " * _INDENT).append(line, style) for line in lines[1:]]

    def _print(self, *rows: Text) -> None:
        for row in rows:
            row.rstrip()
            self._console.print(row, soft_wrap=True)
        if not self._console.is_terminal:
            sys.stdout.flush()

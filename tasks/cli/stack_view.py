"""How the parts of a local stack are shown while they come and go: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from tasks.cli.connect import note
from tasks.local.stack import PartState

if TYPE_CHECKING:
    from rich.console import RenderableType

_LOOKS = {"starting": "yellow", "ready": "green", "ended": "red", "stopped": "bright_black"}


def stack_view() -> StackView:
    return LiveStackView() if sys.stderr.isatty() else StackView()


class StackView:
    """Pass `tell` to `LocalStack`; `with` spans one phase, such as the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def tell(self, name: str, state: PartState, text: str) -> None:
        seconds = time.monotonic() - self._began
        note(f"{seconds:6.1f} s  {name:7} {state:9} {text}".rstrip())


class LiveStackView(StackView):
    """Within `with` one row a part, redrawn in place; outside of it, lines."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__()
        self._rows: dict[str, tuple[PartState, str]] = {}
        self._live = Live(console=Console(stderr=True), get_renderable=self._table, refresh_per_second=8)
        self._is_drawing = False

    def __enter__(self) -> Self:
        self._live.start()
        self._is_drawing = True
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_drawing = False
        self._live.stop()

    def tell(self, name: str, state: PartState, text: str) -> None:
        if not self._is_drawing:
            super().tell(name, state, text)
            return
        self._rows[name] = (state, text)
        self._live.refresh()

    def _table(self) -> RenderableType:
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for name, (state, text) in self._rows.items():
            mark = Spinner("dots", style="yellow") if state == "starting" else Text("●", style=_LOOKS[state])
            table.add_row(mark, Text(name), Text(state, style=_LOOKS[state]), Text(text, style="bright_black"))
        return table

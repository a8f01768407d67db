"""Single keys of a terminal, without Enter, while something is drawn on it."""

from __future__ import annotations

import os
import select
import sys
import time
from typing import Any, Self


class Keys:
    """A context manager; the terminal is as before afterwards. Where there are no such terminals no key is pressed."""

    def __enter__(self) -> Self:
        self._before: list[Any] | None = None
        try:
            import termios
            import tty

            self._fd = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
        except (ImportError, OSError, ValueError):
            self._before = None
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._before is not None:
            import termios

            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def pressed(self, timeout_s: float) -> str:
        """One key, or nothing if none came in time. Ctrl-C is a key like others."""
        try:
            if self._before is None:
                time.sleep(timeout_s)
                return ""
            if not select.select([self._fd], [], [], timeout_s)[0]:
                return ""
            # An end of file: the terminal has gone.
            return os.read(self._fd, 1).decode("latin-1") or "q"
        except KeyboardInterrupt:
            return "\x03"

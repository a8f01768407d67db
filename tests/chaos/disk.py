"""A disk for the spool alone that can be filled up: a small tmpfs in a mount namespace of its own.

It needs neither root nor a trace on the machine: the namespace goes with the process that holds it. Where the system
allows none there is no such disk, and the plan leaves the fault out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from tasks.errors import StoreUnavailable
from tasks.local.process import ChildProcess

SIZE_KIB = 4096
_AS_ROOT, _AS_USER = (["--mount"], ["--user", "--map-root-user", "--mount"])


class SmallDisk:
    """Mounted at `folder`, for those whose command is `seen_by`."""

    def __init__(self, folder: Path, log: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._holder = self._hold(log) if shutil.which("unshare") and shutil.which("nsenter") else None

    @property
    def is_there(self) -> bool:
        return self._holder is not None

    def _hold(self, log: Path) -> ChildProcess | None:
        """The process that keeps the namespace."""
        mount = f'mount -t tmpfs -o size={SIZE_KIB}k,mode=700 spool "$0" && touch "$0.mounted" && exec sleep 86400'
        kind = _AS_USER if os.geteuid() else _AS_ROOT
        holder = ChildProcess("disk", ["unshare", *kind, "sh", "-c", mount, str(self._folder)], log=log)
        try:
            holder.wait_ready(Path(f"{self._folder}.mounted").exists, timeout_s=20)
            return holder
        except StoreUnavailable:
            holder.stop()
            return None

    def seen_by(self, command: list[str]) -> list[str]:
        if self._holder is None:
            return command
        kind = ["--user", "--preserve-credentials", "--mount"] if os.geteuid() else ["--mount"]
        return ["nsenter", f"--target={self._holder.pid}", *kind, f"--wd={os.getcwd()}", *command]

    @property
    def _filler(self) -> Path:
        assert self._holder is not None
        return Path(f"/proc/{self._holder.pid}/root{self._folder}/filler")

    def fill(self) -> None:
        """To the last block."""
        with contextlib.suppress(OSError), self._filler.open("ab", buffering=0) as filler:
            while True:
                filler.write(b"\0" * 4096)

    def free(self) -> None:
        if self._holder is not None:
            self._filler.unlink(missing_ok=True)

    def stop(self) -> None:
        if self._holder is not None:
            self._holder.stop()

"""Processes of an engine: a fresh interpreter for one of our modules, with a socket to it. Never a fork."""

from __future__ import annotations

import os
import socket
import subprocess  # nosec B404 # our own interpreter with our own module, no shell
import sys
from collections.abc import Mapping


def spawned(module: str, environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process and our end of its socket. The thread that calls must outlive it, whose end would kill it (Linux)."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(  # nosec B603 # as above
            [sys.executable, "-P", "-m", module, str(theirs.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            env={**os.environ, "PYTHONPATH": _import_path(), **environment},
            process_group=0,  # Ctrl-C in a terminal is for the parent alone
        )
    return process, ours


def _import_path() -> str:
    """So that the process finds the same packages as this one."""
    return os.pathsep.join(dict.fromkeys(path or os.getcwd() for path in sys.path))


def visible_device(device: str, environment: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """A CUDA device by number as the only one that a process sees, so that nothing of it lands on another card.

    The device's name there, and the variables for it. Any other device is left as it is.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda" or not number.isdigit():
        return device, {}
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in visible.split(",")] if visible else []
    if names and int(number) >= len(names):
        return device, {}  # torch says better than we what is wrong
    return "cuda", {"CUDA_VISIBLE_DEVICES": names[int(number)] if names else number}

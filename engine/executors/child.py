"""The first steps of a process that an engine has spawned: to end with its parent, and to hear it."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from contextlib import suppress

from .channel import Channel

_PR_SET_PDEATHSIG = 1


def from_parent(argv: list[str]) -> Channel:
    """The channel to the parent, from the arguments that `spawn.spawned` gives."""
    fd, parent = map(int, argv)
    _die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then says what is to be done
    return Channel(socket.socket(fileno=fd))


def _die_with_parent(parent: int) -> None:
    """By the kernel's hand where there is one (Linux); the end of the socket tells all the same."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)

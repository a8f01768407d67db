"""Ties a child's life to its parent's: a command wrapped here is killed when the parent is gone, however it went.

The parent holds one end of a pipe; the other is the command's standard input. A shell in the command's process group
waits for the pipe to close and then kills the group; the command itself takes the first shell's place, and its pid.
No thread, no `preexec_fn`, no Linux-only call (PR_SET_PDEATHSIG would fire when the *thread* that forked ends).
"""

from __future__ import annotations

from collections.abc import Sequence

# Two subshells make the watcher a child of init: the command never meets a child that it did not start.
_WATCH = """\
exec 3<&0 </dev/null
( (trap '' HUP INT TERM; read -r _ <&3; kill -KILL -$$) >/dev/null 2>&1 & )
exec 3<&-
exec "$@"
"""


def guarded(command: Sequence[str]) -> list[str]:
    """Start the result as the leader of its own session, with the read end of the pipe as standard input."""
    return ["/bin/sh", "-c", _WATCH, "safelight-guard", *command]

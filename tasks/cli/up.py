"""`safelight up`: the local stack in the foreground, until Ctrl-C, SIGTERM or the end of its parent."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tasks.cli.connect import note
from tasks.cli.output import print_json
from tasks.cli.stack_view import stack_view
from tasks.local.environment import ENV_FILE
from tasks.local.stack import LocalStack

_CHECK_S = 0.5


def run_stack(folder: Path, port: int | None, *, exit_with_parent: bool, as_json: bool) -> None:
    view = stack_view()
    parent = os.getppid() if exit_with_parent else None
    with stopped_by_signals():
        stack = LocalStack(folder, api_port=port, tell=view.tell)
        with view:
            stack.__enter__()
        try:
            if as_json:
                # Not its variables: what is printed ends in logs, and the key of the object store is among them.
                print_json({"url": stack.api_url, "env_file": str(stack.env_file), "pids": stack.pids()})
            _introduce(stack)
            serve_on(stack, parent)
        finally:
            note("stopping; what runs may take some seconds to end")
            stack.stop()


def serve_on(stack: LocalStack, parent: int | None = None) -> None:
    """Keep the stack alive until Ctrl-C, or until `parent` is no longer this process's parent."""
    with contextlib.suppress(KeyboardInterrupt):
        while parent is None or os.getppid() == parent:
            stack.check()
            time.sleep(_CHECK_S)


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end this process as Ctrl-C does: through its `finally` blocks."""
    names = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(signum, signal.default_int_handler) for signum in names]
    try:
        yield
    finally:
        for signum, handler in zip(names, before, strict=True):
            signal.signal(signum, handler)


def _introduce(stack: LocalStack) -> None:
    file = shlex.quote(str(stack.env_file))
    note("")
    note(f"Page and API:   {stack.api_url}/   (the API to read and try: {stack.api_url}/docs)")
    if stack.env_file == ENV_FILE.resolve():
        note("Another shell:  in this folder safelight finds this stack by itself:")
        note('                    safelight submit "a red house under a yellow sun" -o pictures')
        note(f"                other programs, and other folders, after: source {file}")
    else:
        note(f"Another shell:  source {file}")
        note('                safelight submit "a red house under a yellow sun" -o pictures')
    note(f"Logs:           {stack.folder / 'logs'}")
    note("Stop:           Ctrl-C")

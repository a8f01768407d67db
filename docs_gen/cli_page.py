"""Every command of `safelight`, as its own help says it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main
from typer import Context

from tasks.cli.app import app

WIDTH = 100
_HEAD = """# Command line

`safelight COMMAND --help` shows what stands here. Every command takes its servers from the [settings](settings.md), and
most speak JSON with `--json`: data on stdout, notes on stderr.

| exit code | of commands that send or follow a job | of others |
| --- | --- | --- |
| 0 | succeeded | done |
| 1 | failed | it could not be done |
| 2 | usage, or a wrong field | the same |
| 3 | aborted | – |
| 4 | a server cannot be reached | the same |
"""


def cli_page() -> str:
    parts = [_HEAD]
    for command, context in _commands(typer.main.get_command(app), "safelight", None):
        parts += [f"## `{context.command_path}`\n", f"```text\n{command.get_help(context).rstrip()}\n```\n"]
    return "\n".join(parts)


def _commands(command: Any, name: str, parent: Context | None) -> Iterator[tuple[Any, Context]]:
    context = Context(command, info_name=name, parent=parent, terminal_width=WIDTH, **command.context_settings)
    yield command, context
    for word, below in getattr(command, "commands", {}).items():
        yield from _commands(below, word, context)

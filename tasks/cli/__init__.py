"""The `safelight` command. Imports what a command needs when it runs, so that `--help` is quick."""

from __future__ import annotations


def main() -> None:
    """The entry point: run the command line and leave with the exit codes of `tasks.cli.exits`."""
    from tasks.cli.exits import run

    run()

"""`safelight top`: queues, workers and jobs at a glance, live."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tasks.cli.connect import model_names, open_client
from tasks.cli.output import AsJson, print_json
from tasks.errors import StoreUnavailable

if TYPE_CHECKING:
    from tasks.cli.top_look import Look
    from tasks.client import Client

Interval = Annotated[float, typer.Option(min=0.1, max=60, metavar="SECONDS", help="Between two looks.")]
Once = Annotated[bool, typer.Option("--once", help="One look, then leave.")]
#: How often keys and the size of the screen are looked at.
_KEYS_S = 0.2


def top(*, interval: Interval = 1.0, once: Once = False, as_json: AsJson = False) -> None:
    """Show queues, workers, running jobs and the last ended ones, live. q ends it.

    In a pipe there is one look, and with --json one a line.

    \b
    Examples:
      safelight top
      safelight top --once
      safelight top --once --json | jq '.queues[].queued'
    """
    with open_client() as client:
        is_live = not once and (as_json or (sys.stdout.isatty() and sys.stdin.isatty()))
        if not is_live:
            _once(client, as_json)
        elif as_json:
            _lines(client, interval)
        else:
            _screen(client, interval)


def _once(client: Client, as_json: bool) -> None:
    from tasks.cli.top_look import look_at

    look = look_at(client, model_names(client))
    if as_json:
        print_json(look.to_json())
        return
    from rich.console import Console

    from tasks.cli.top_view import frame

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    for line in frame(look, console.width):
        console.print(line, soft_wrap=True)


def _lines(client: Client, interval_s: float) -> None:
    from tasks.cli.top_look import look_at

    models = model_names(client)
    while True:
        print_json(look_at(client, models).to_json())
        time.sleep(interval_s)


def _screen(client: Client, interval_s: float) -> None:
    """Until q or Ctrl-C. The first look must succeed; after that an outage is told on the screen and ridden out."""
    from rich.console import Console, Group
    from rich.live import Live

    from tasks.cli.keys import Keys
    from tasks.cli.top_look import look_at
    from tasks.cli.top_view import frame

    console, models = Console(highlight=False), model_names(client)
    look, trouble, look_at_s = look_at(client, models), "", time.monotonic() + interval_s
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        drawn: tuple[object, ...] = ()
        while True:
            if drawn != (wanted := (look, trouble, console.size)):
                drawn = wanted
                live.update(Group(*frame(look, console.width, console.height, trouble)), refresh=True)
            if keys.pressed(min(_KEYS_S, interval_s)) in ("q", "Q", "\x03"):
                return
            if time.monotonic() >= look_at_s:
                look, trouble = _again(client, models, look)
                look_at_s = time.monotonic() + interval_s


def _again(client: Client, models: Sequence[str], last: Look) -> tuple[Look, str]:
    from tasks.cli.top_look import look_at

    try:
        return look_at(client, models), ""
    except StoreUnavailable as error:
        return last, str(error)

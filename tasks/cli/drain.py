"""`safelight drain`: ask workers to leave in good order, and see them off."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasks.cli.connect import note, open_client
from tasks.cli.exits import FAILED
from tasks.cli.output import AsJson, print_json
from tasks.errors import StoreUnavailable, UnknownWorker

if TYPE_CHECKING:
    from tasks.client import Client

_INTERVAL_S = 0.2
#: An outage of Redis that `--wait` rides out; the workers drain either way.
_PATIENCE_S = 30.0


Nodes = Annotated[
    list[str] | None, typer.Argument(metavar="NODE...", help="Workers by name, or by the part before the process id.")
]
Timeout = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="Of --wait: give up after so long, with exit code 1.")
]


def drain(
    nodes: Nodes = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Every worker that is up now.")] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Return once they are gone.")] = False,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Ask workers to take nothing new, finish what fits into their grace, give the rest back and leave, as on SIGTERM.

    NODE is SAFELIGHT_WORKER_NAME (default: the host's name) and stands for all its processes, or a whole name of
    `safelight queues`. Processes that start later are not meant.

    \b
    Exit code: 1 for a node that is not up, or if --timeout passes.
    Examples:
      safelight drain gpu-17 --wait
      safelight drain $HOSTNAME --wait       as the preStop hook of a pod
      safelight drain --all
    """
    if bool(nodes) == all_:
        raise typer.BadParameter("name at least one node, or --all, and not both")
    with open_client() as client:
        names, is_any_unknown = (client.drain_all(), False) if all_ else _ask(client, nodes or ())
        for name in names:
            print_json({"worker": name, "state": "asked"}) if as_json else print(f"{name}  asked to drain", flush=True)
        if all_ and not names:
            note("no worker is up")
        is_late = wait and not _see_off(client, names, timeout, _teller(as_json))
    if is_any_unknown or is_late:
        raise typer.Exit(FAILED)


def _ask(client: Client, nodes: Sequence[str]) -> tuple[list[str], bool]:
    """Names of those asked, each once, and whether a node was unknown."""
    names: dict[str, None] = {}
    is_any_unknown = False
    for node in nodes:
        try:
            names |= dict.fromkeys(client.drain(node))
        except UnknownWorker as error:
            note(f"safelight: {error}")
            is_any_unknown = True
    return list(names), is_any_unknown


def _teller(as_json: bool) -> Callable[[str, str, int], None]:
    def tell(name: str, state: str, jobs: int) -> None:
        if as_json:
            print_json({"worker": name, "state": state, "jobs": jobs})
        elif state == "gone":
            print(f"{name}  gone", flush=True)
        else:
            note(f"{name}  {state}, {jobs} jobs")

    return tell


def _see_off(
    client: Client, names: Sequence[str], timeout_s: float | None, tell: Callable[[str, str, int], None]
) -> bool:
    """Tell each change of state until all are gone; False if the time is over first. Raises `StoreUnavailable`."""
    seen: dict[str, tuple[str, int]] = {}
    began_at = reached_at = time.monotonic()
    while True:
        try:
            up = {str(worker.get("name")): worker for worker in client.store.workers()}
            reached_at = time.monotonic()
        except StoreUnavailable:
            if time.monotonic() - reached_at > _PATIENCE_S:
                raise
        else:
            for name in names:
                if seen.get(name) != (state := _state_of(up.get(name))):
                    seen[name] = state
                    tell(name, *state)
            if all(state == "gone" for state, _ in seen.values()):
                return True
        if timeout_s is not None and time.monotonic() - began_at > timeout_s:
            note(f"safelight: not gone within {timeout_s:g} s; they go on draining")
            return False
        time.sleep(_INTERVAL_S)


def _state_of(worker: Mapping[str, Any] | None) -> tuple[str, int]:
    return ("gone", 0) if worker is None else (str(worker.get("state")), int(worker.get("jobs") or 0))

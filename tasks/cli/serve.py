"""Commands that run until they are stopped: a worker, the API, or the whole local stack."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tasks.cli import complete
from tasks.cli.connect import adopt_local_stack, settings_here
from tasks.errors import ConfigError

JsonLogs = Annotated[bool, typer.Option("--json", help="Log lines as JSON, as SAFELIGHT_LOG_FORMAT=json.")]


def worker(
    *,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "--models",
            "-m",
            metavar="NAME",
            help="Serve this one only; repeatable.",
            autocompletion=complete.models,
        ),
    ] = None,
    as_json: JsonLogs = False,
) -> None:
    """Serve models on this machine's device until SIGTERM or Ctrl-C.

    Stops in good order: takes nothing new, finishes what fits into SAFELIGHT_DRAIN_GRACE_S, gives the rest back.

    \b
    Examples:
      safelight worker
      SAFELIGHT_MODELS=models.toml safelight worker --model sdxl
    """
    _need("worker", ("torch", "diffusers", "transformers"))
    adopt_local_stack()
    _choose_logs(as_json)
    names = [name.strip() for text in models or () for name in text.split(",") if name.strip()]
    options = [word for name in names for word in ("--model", name)]
    # In place: the worker gets this process's id, signals and exit code.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "worker", *options])  # nosec B606 # the operator's own words


def api(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes a free one.")] = 8000,
    as_json: JsonLogs = False,
) -> None:
    """Serve the HTTP API and its page until SIGTERM or Ctrl-C.

    \b
    Examples:
      safelight api
      safelight api --host 0.0.0.0 --port 80
    """
    _need("api", ("fastapi", "uvicorn", "prometheus_client"))
    _choose_logs(as_json)
    serve = importlib.import_module("api_stub").serve
    raise typer.Exit(serve(settings_here(), host, port))


def up(
    *,
    port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Of the API; default 8000, or a free one.")
    ] = None,
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Where data and logs stay.")] = Path(".local"),
    exit_with_parent: Annotated[bool, typer.Option(help="Stop when the process that started this one ends.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON on stdout once everything serves.")] = False,
) -> None:
    """Run everything on this machine: Redis, S3, a worker and the API. Ctrl-C stops it all.

    In another shell of the same folder, `safelight` finds the stack by itself; others after `source .local/env`.

    \b
    Examples:
      safelight up
      safelight up --port 9000 --folder /tmp/stack
    """
    _need("worker", ("torch", "diffusers", "transformers"))
    _need("api", ("fastapi", "uvicorn"))
    from tasks.cli.up import run_stack

    run_stack(folder, port, exit_with_parent=exit_with_parent, as_json=as_json)


def demo(
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where the pictures go.")] = Path(
        "outputs"
    ),
    exit_after: Annotated[
        bool, typer.Option("--exit", help="Stop everything at the end instead of serving on.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON a job on stdout.")] = False,
) -> None:
    """See it work: start the local stack, send 24 jobs, save the pictures and a contact sheet.

    \b
    Examples:
      safelight demo
      safelight demo --exit -o /tmp/pictures
    """
    _need("worker", ("torch", "diffusers", "transformers"))
    _need("api", ("fastapi", "uvicorn"))
    from tasks.cli.demo.run import run_demo

    raise typer.Exit(run_demo(output, exit_after=exit_after, as_json=as_json))


def _choose_logs(as_json: bool) -> None:
    if as_json:
        os.environ["SAFELIGHT_LOG_FORMAT"] = "json"


def _need(extra: str, packages: tuple[str, ...]) -> None:
    """Raises `ConfigError` with what to install; imports none of the packages."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"{', '.join(missing)} not installed; this needs: pip install 'safelight[{extra}]'")

"""`safelight doctor`: what is wrong with this set-up, and the setting to change."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tasks.cli.connect import settings_here
from tasks.cli.exits import FAILED, SUCCEEDED, UNREACHABLE
from tasks.cli.output import AsJson, print_json
from tasks.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.cli.doctor_view import DoctorView
    from tasks.doctor.finding import Finding

AREAS = ("settings", "redis", "broker", "store", "models", "device", "api", "workers")


def doctor(
    *,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="AREAS", help=f"Some of: {','.join(AREAS)}.")
    ] = None,
    api_url: Annotated[
        str | None,
        typer.Option("--api", metavar="URL", help="Where the API should be running; default: SAFELIGHT_URL."),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, max=60, help="For each question to a server.")
    ] = 3.0,
    as_json: AsJson = False,
) -> None:
    """Check this set-up: settings, Redis, broker, object store, models, device, API, workers.

    Says what is wrong and which setting to change. What it writes it deletes again.

    \b
    Examples:
      safelight doctor
      safelight doctor --only redis,store
      safelight doctor --json | jq '.[] | select(.status == "FAIL")'

    \b
    Exit code: 0 nothing fails (there may be warnings), 1 something fails, 4 Redis or the object store is out of reach.
    """
    from tasks.cli.doctor_view import DoctorView

    names, began = _chosen(only), time.monotonic()
    with DoctorView(quiet=as_json) as view:
        findings = []
        for finding in _findings(names, api_url, timeout_s, view):
            findings.append(finding)
            view.show(finding)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        view.sum_up(findings, time.monotonic() - began)
    raise typer.Exit(_code(findings))


def _findings(names: list[str], api_url: str | None, timeout_s: float, view: DoctorView) -> Iterator[Finding]:
    from tasks.doctor.examine import examine
    from tasks.doctor.judge.settings import judge_settings
    from tasks.doctor.scope import Scope

    try:
        settings = settings_here()
    except ConfigError as error:
        yield from judge_settings(str(error), os.environ)  # whatever was asked for: nothing else can be read
        return
    if "settings" in names:
        yield from judge_settings(settings, os.environ)
    named_by = "--api" if api_url else "SAFELIGHT_URL"  # the latter also from the file of a local stack
    scope = Scope(settings, limit_s=timeout_s, api_url=api_url or os.environ.get(named_by), api_url_from=named_by)
    yield from examine(scope, [name for name in names if name != "settings"], view.tell)


def _chosen(only: list[str] | None) -> list[str]:
    """In the order of an examination. Raises `ConfigError` for an area that is none."""
    wanted = {name.strip() for text in only or AREAS for name in text.split(",") if name.strip()}
    if unknown := sorted(wanted.difference(AREAS)):
        raise ConfigError(f"--only {unknown[0]}: there are {', '.join(AREAS)}")
    return [name for name in AREAS if name in wanted]


def _code(findings: list[Finding]) -> int:
    from tasks.doctor.finding import has_failed, is_unreachable

    if is_unreachable(findings):
        return UNREACHABLE
    return FAILED if has_failed(findings) else SUCCEEDED

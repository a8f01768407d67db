"""The command line as typer sees it. Plain help: rich would double the time to show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from tasks.cli import doctor, drain, jobs, letters, serve, system

app = typer.Typer(
    name="safelight",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"safelight {version('safelight')}")
        raise typer.Exit


@app.callback()
def safelight(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Diffusion jobs on a queue: send them, follow them, end them.

    \b
    Try it, with nothing but this package:
      safelight up                                     everything on this machine, until Ctrl-C
      safelight submit "a red house" -o pictures       in another shell of the same folder

    \b
    Follow and steer:
      safelight submit "a tree at night" --steps 40    prints the job's id
      safelight watch ID ID ...                        bars, then one line a job
      safelight explain ID                             why it waits, with whom it ran, what it cost
      safelight abort ID                               at once, or at the next denoising step
      safelight ls --status running --json | jq .id    nearly every command speaks JSON

    \b
    Run it:
      safelight worker, safelight api                  one worker for each device, any number of APIs
      safelight doctor                                 what is wrong here, and which setting to change
      safelight drain NODE --wait                      empty a worker before its machine goes
      safelight dead-letter ls                         jobs that failed for no fault of their requester

    \b
    Settings are SAFELIGHT_* variables (SAFELIGHT_REDIS_URL, SAFELIGHT_S3_ENDPOINT_URL, SAFELIGHT_S3_BUCKET,
    SAFELIGHT_MODELS, ...); credentials of the object store are AWS's own (AWS_ACCESS_KEY_ID, ...).

    \b
    Exit code: 0 succeeded, 1 failed, 2 usage or a wrong field, 3 aborted, 4 cannot reach a server.
    """


for command in (
    jobs.submit,
    jobs.status,
    jobs.explain,
    jobs.watch,
    jobs.abort,
    jobs.ls,
    jobs.replay,
    system.models,
    system.queues,
    doctor.doctor,
    drain.drain,
    serve.worker,
    serve.api,
    serve.up,
    serve.demo,
):
    app.command()(command)


def _section(name: str, about: str, commands: dict[str, Callable[..., None]]) -> None:
    section = typer.Typer(name=name, help=about, no_args_is_help=True, rich_markup_mode=None)
    for word, function in commands.items():
        section.command(word)(function)
    app.add_typer(section)


_section(
    "dead-letter",
    "Jobs that failed for no fault of their requester, kept until an operator has seen to them.",
    {
        "ls": letters.dead_letter_ls,
        "show": letters.dead_letter_show,
        "retry": letters.dead_letter_retry,
        "purge": letters.dead_letter_purge,
    },
)
_section(
    "webhooks",
    "Webhook deliveries that were given up after all tries.",
    {"ls": letters.webhooks_ls, "retry": letters.webhooks_retry, "purge": letters.webhooks_purge},
)

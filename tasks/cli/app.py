"""The command line as typer sees it. Plain help: rich would double the time to show it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

import typer

from tasks.cli import doctor, drain, jobs, letters, serve, system, top
from tasks.cli.submit import submit
from tasks.cli.watch import watch

app = typer.Typer(
    name="safelight",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
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
      safelight watch ID ID ...                        bars and previews, then one line a job; also --all
      safelight top                                    queues, workers and jobs, live
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
    Words can be completed by tab: safelight --install-completion, once.

    \b
    Exit code: 0 succeeded, 1 failed, 2 usage or a wrong field, 3 aborted, 4 cannot reach a server.
    """


def _first_sentence(command: Callable[..., None]) -> str:
    """For the list of commands, where the parser itself would cut it."""
    paragraph = " ".join((command.__doc__ or "").split("\n\n")[0].split())
    return re.split(r"[.;](?= |$)", paragraph)[0] + "."


for command in (
    submit,
    jobs.status,
    jobs.explain,
    watch,
    jobs.abort,
    jobs.ls,
    jobs.replay,
    top.top,
    system.models,
    system.queues,
    doctor.doctor,
    drain.drain,
    serve.worker,
    serve.api,
    serve.up,
    serve.demo,
):
    app.command(short_help=_first_sentence(command))(command)


def _section(name: str, about: str, commands: dict[str, Callable[..., None]]) -> None:
    section = typer.Typer(name=name, help=about, no_args_is_help=True, rich_markup_mode=None)
    for word, function in commands.items():
        section.command(word, short_help=_first_sentence(function))(function)
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

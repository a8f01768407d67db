"""`safelight submit`: from words on a command line, a file or a pipe to jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from tasks.cli.connect import note, open_client
from tasks.cli.download import check_folder
from tasks.cli.fields import given_fields, with_field_options
from tasks.cli.output import AsJson, print_job, screen_width
from tasks.cli.previews import PREVIEW_EVERY, WithPreview
from tasks.cli.watch import AbortOnInterrupt, Following, Output, see_through

Prompt = Annotated[
    str | None,
    typer.Argument(metavar="PROMPT", help="What to make; - reads it from standard input.", show_default=False),
]
PromptFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Read the prompt from there.")]
Batch = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Send one request a line (JSON, or - for standard input); all or none."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Any field of a request, by its name in the API; repeatable."),
]
Key = Annotated[
    str | None, typer.Option(metavar="KEY", help="Sending the same again with this key gives the same job.")
]


@with_field_options
def submit(
    prompt: Prompt = None,
    *,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Follow the job to its end.")] = False,
    output: Output = None,
    preview: WithPreview = None,
    prompt_file: PromptFile = None,
    batch: Batch = None,
    set_: Sets = None,
    idempotency_key: Key = None,
    abort_on_interrupt: AbortOnInterrupt = False,
    as_json: AsJson = False,
    **fields: Any,
) -> None:
    """Send a job; prints its id.

    Fields left out take the model's defaults. The exit code is that of the job if you wait for it. Ctrl-C leaves it
    running.

    \b
    Examples:
      safelight submit "a red house under a yellow sun"
      safelight submit "a boat on the sea at sunset" --steps 20 --seed 7 -o pictures
      safelight submit "a tree at night" --num-outputs 4 --wait --json
      safelight submit "the same in winter" --image house.png --strength 0.6 -o .
      echo "a pink flower" | safelight submit - --group flowers --supersede
      safelight submit --batch requests.jsonl --steps 20 -o pictures
    """
    given = given_fields(fields, set_ or ())
    if preview:
        given = {"preview_every": PREVIEW_EVERY} | given
    check_folder(output)
    follows = Following(output, preview, as_json, abort_on_interrupt)
    waits = wait or output is not None or bool(preview) or abort_on_interrupt
    if batch is not None:
        if prompt is not None or prompt_file is not None or idempotency_key is not None:
            raise typer.BadParameter("goes without PROMPT, --prompt-file and --idempotency-key", param_hint="--batch")
        _submit_batch(batch, given, follows, waits=waits)
    request = given | _prompt_of(prompt, prompt_file, is_set="prompt" in given)
    with open_client() as client:
        job = client.submit(request, idempotency_key=idempotency_key)
        if waits:
            see_through(client, [job.id], follows)
    print_job(job, as_json) if as_json else print(job.id)
    if not as_json:
        note(f"to follow it: safelight watch {job.id}")


def _prompt_of(prompt: str | None, file: Path | None, *, is_set: bool) -> dict[str, str]:
    from tasks.cli.batch import text_of

    if (prompt is not None) + (file is not None) + is_set != 1:
        raise typer.BadParameter("give one prompt: in quotes, as - for standard input, by --prompt-file or --batch")
    if file is not None:
        return {"prompt": text_of(str(file), "--prompt-file").strip()}
    if prompt == "-":
        return {"prompt": text_of("-", "PROMPT").strip()}
    return {} if prompt is None else {"prompt": prompt}


def _submit_batch(path: str, given: dict[str, Any], follows: Following, *, waits: bool) -> NoReturn:
    from tasks.cli.batch import print_batch, read_batch

    with open_client() as client:
        jobs = client.submit_many(read_batch(path, given, client.models))
        note(f"sent {len(jobs)} jobs")
        if waits:
            see_through(client, [job.id for job in jobs], follows, lambda ended: print_batch(ended, screen_width()))
    if follows.as_json:
        for job in jobs:
            print_job(job, as_json=True)
    else:
        print_batch(jobs, screen_width())
    raise typer.Exit

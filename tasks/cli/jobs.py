"""Commands about jobs that are there: look, end, repeat."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tasks.cli import complete
from tasks.cli.connect import note, open_client
from tasks.cli.exits import code_of_statuses
from tasks.cli.output import AsJson, job_line, print_job, print_json, screen_width
from tasks.cli.previews import WithPreview
from tasks.cli.watch import AbortOnInterrupt, Following, Output, see_through
from tasks.errors import UnknownJob

JobId = Annotated[
    str, typer.Argument(metavar="ID", help="The id that `submit` printed.", autocompletion=complete.job_ids)
]


def status(job_id: JobId, *, as_json: AsJson = False) -> None:
    """Show one job as it is now.

    \b
    Exit code: 1 if it failed, 3 if it was aborted, else 0.
    Example:
      safelight status 01JZ8Q... --json | jq .progress
    """
    with open_client() as client:
        job = client.get(job_id)
    print_job(job, as_json)
    raise typer.Exit(code_of_statuses([job.status.value]))


def explain(job_id: JobId, *, as_json: AsJson = False) -> None:
    """Say why a job waits, what runs meanwhile, and of an ended one with whom it ran and what it cost.

    \b
    Examples:
      safelight explain 01JZ8Q...
      safelight explain 01JZ8Q... --json | jq .reasons
    """
    with open_client() as client:
        explanation = client.explain(job_id)
    if as_json:
        print_json(explanation.to_json())
        return
    from tasks.explain import lines

    for line in lines(explanation):
        print(line)


def abort(
    job_id: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="Jobs to end.", autocompletion=complete.live_job_ids)
    ] = None,
    *,
    group: Annotated[str | None, typer.Option(metavar="NAME", help="End every live job of this group.")] = None,
    as_json: AsJson = False,
) -> None:
    """Ask for the end of jobs: at once if queued, at the next denoising step if running.

    \b
    Examples:
      safelight abort 01JZ8Q...
      safelight abort --group drafts
    """
    if not job_id and group is None:
        raise typer.BadParameter("name at least one job, or a --group")
    unknown: list[str] = []
    with open_client() as client:
        ids = [*(client.abort_group(group) if group is not None else ()), *(job_id or ())]
        for each in ids:
            try:
                job = client.abort(each)
            except UnknownJob as error:  # the others are to end all the same
                unknown.append(str(error))
                continue
            print_json(job.to_json()) if as_json else print(_abort_line(job))
    if not ids:
        note(f"no live job in group {group}")
    for words in unknown:
        note(f"safelight: {words}")
    if unknown:
        raise typer.Exit(1)


def _abort_line(job: Any) -> str:
    if job.status.value == "running":
        return f"{job.id}  will end at its next step"
    return f"{job.id}  {job.status.value}" + ("" if job.status.value == "aborted" else " before; nothing to end")


def ls(
    *,
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS", help="queued, running, succeeded, failed or aborted.", autocompletion=complete.statuses
        ),
    ] = None,
    group: Annotated[str | None, typer.Option(metavar="NAME", help="Only jobs of this group.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first.

    \b
    Examples:
      safelight ls --status running
      safelight ls --group drafts --limit 100 --json | jq -r .id
    """
    from tasks.job import JobStatus

    if status is not None and status not in list(JobStatus):
        raise typer.BadParameter(f"{status!r} is none of {', '.join(JobStatus)}", param_hint="--status")
    wanted = None if status is None else JobStatus(status)
    width = screen_width()
    with open_client() as client:
        num_left, cursor = limit, None
        while num_left > 0:
            page = client.store.list(status=wanted, group=group, limit=min(num_left, 100), cursor=cursor)
            for job in page.jobs:
                print_json(job.to_json()) if as_json else print(job_line(job, width))
            num_left, cursor = num_left - len(page.jobs), page.cursor
            if cursor is None:
                break
    if num_left == limit:
        note("no such jobs")


def replay(
    job_id: JobId,
    *,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Follow the new job to its end.")] = False,
    output: Output = None,
    preview: WithPreview = None,
    abort_on_interrupt: AbortOnInterrupt = False,
    as_json: AsJson = False,
) -> None:
    """Send the same resolved request again, seed included, as a new job.

    \b
    Example:
      safelight replay 01JZ8Q... -o again
    """
    with open_client() as client:
        job = client.replay(job_id)
        if wait or output is not None or abort_on_interrupt:
            see_through(client, [job.id], Following(output, preview, as_json, abort_on_interrupt))
    print_job(job, as_json) if as_json else print(job.id)

"""`safelight watch`, and what it shares with `submit --wait`: follow jobs, then save and show what they made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tasks.cli import complete
from tasks.cli.connect import note, open_client
from tasks.cli.download import check_folder
from tasks.cli.exits import code_of_statuses
from tasks.cli.output import AsJson, print_job
from tasks.cli.previews import WithPreview, pictures_here, show_results

if TYPE_CHECKING:
    from tasks.cli.board import Board
    from tasks.cli.pictures.terminal import Protocol
    from tasks.client import Client
    from tasks.job import Job

JobIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID...", help="Ids that `submit` printed.", autocompletion=complete.live_job_ids),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="DIR", help="Save the results there; waits for them.")
]
AbortOnInterrupt = Annotated[bool, typer.Option(help="Ctrl-C ends the jobs instead of leaving them.")]
Tell = Callable[[Sequence["Job"]], None]


@dataclass(frozen=True)
class Following:
    """How to follow jobs, and what to do with their outputs."""

    output: Path | None = None
    preview: bool | None = None
    as_json: bool = False
    aborts: bool = False
    #: With JSON: every event, not just each job as it ends.
    events: bool = False
    #: What the jobs have in common, if anything.
    group: str | None = None


def watch(
    job_ids: JobIds = None,
    *,
    group: Annotated[str | None, typer.Option(metavar="NAME", help="The live jobs of this group.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every job that waits or runs now.")] = False,
    output: Output = None,
    preview: WithPreview = None,
    abort_on_interrupt: AbortOnInterrupt = False,
    as_json: AsJson = False,
) -> None:
    """Follow jobs to their ends, many at once; then one line each.

    Ctrl-C leaves the jobs running. With --json each event is a line, and the whole job is in its last one, `done`.

    \b
    Examples:
      safelight watch 01JZ8Q...
      safelight watch --group drafts -o pictures
      safelight watch --all
      safelight watch 01JZ8Q... --json | jq -r 'select(.event == "done") | .outputs[].uri'
    """
    if bool(job_ids) + (group is not None) + all_ != 1:
        raise typer.BadParameter("name jobs, or a --group, or --all")
    check_folder(output)
    with open_client() as client:
        ids = list(job_ids) if job_ids else _live(client, group)
        if not ids:
            note("no job waits or runs" + ("" if group is None else f" in group {group}"))
            return
        see_through(client, ids, Following(output, preview, as_json, abort_on_interrupt, events=True, group=group))


def _live(client: Client, group: str | None) -> list[str]:
    """Ids of jobs that wait or run now, oldest first."""
    from tasks.job import JobStatus

    found: dict[str, Job] = {}
    for status in (JobStatus.QUEUED, JobStatus.RUNNING):  # in the order of a job's life: one that moves on is met again
        cursor = None
        while True:
            page = client.store.list(status=status, group=group, limit=1_000, cursor=cursor)
            found |= {job.id: job for job in page.jobs}
            if (cursor := page.cursor) is None:
                break
    # Those of one call have one time, and random ids: their order is that of the lists, which have the newest first.
    oldest_first = list(found)[::-1]
    return sorted(oldest_first, key=lambda job_id: found[job_id].created_at)


def see_through(client: Client, job_ids: Sequence[str], how: Following, tell: Tell | None = None) -> NoReturn:
    """Follow the jobs, save and show what they made, and leave with their exit code; `tell` replaces a line each."""
    from tasks.cli.download import download
    from tasks.cli.follow import follow

    pictures = None if how.as_json else pictures_here(how.preview)
    board = _board(len(job_ids), how, pictures, tells_ends=tell is None)
    jobs = follow(client, job_ids, board, aborts=how.aborts, group=how.group)
    if not board.tells_ends:
        tell(jobs) if tell is not None else _print_jobs(jobs)
    if how.output is not None:
        sys.stdout.flush()
        for path in download(client.settings, jobs, how.output):
            note(f"saved {path}")
    show_results(client.settings, jobs, pictures)
    raise typer.Exit(code_of_statuses(job.status.value for job in jobs))


def _board(num_jobs: int, how: Following, pictures: Protocol | None, *, tells_ends: bool) -> Board:
    from tasks.cli.board import EventBoard, JobBoard, board_for

    if how.as_json:
        return EventBoard(previews=how.preview is not False) if how.events else JobBoard()
    return board_for(num_jobs, pictures=pictures, tells_ends=tells_ends)


def _print_jobs(jobs: Sequence[Job]) -> None:
    for job in jobs:
        print_job(job, as_json=False)

"""Follows jobs to their ends. Leaving early (Ctrl-C) leaves them running and says how to come back."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tasks.cli.board import board_for
from tasks.cli.connect import note
from tasks.cli.output import print_job
from tasks.errors import StoreUnavailable

if TYPE_CHECKING:
    from tasks.client import Client
    from tasks.job import Job

_INTERVAL_S = 0.2
#: How long an outage of Redis may last before `watch` gives up; the jobs go on either way.
_PATIENCE_S = 30.0


def follow(client: Client, job_ids: Sequence[str], *, as_json: bool) -> list[Job]:
    """Show progress until every job has ended, then one result each; JSON comes as soon as a job ends."""
    ends: dict[str, Job] = {}
    try:
        with board_for(len(job_ids), quiet=as_json) as board:
            for job in states(client, job_ids):
                board.show(job)
                if job.status.is_terminal:
                    ends[job.id] = job
                    if as_json:
                        print_job(job, as_json)
    except KeyboardInterrupt:
        _say_goodbye([job_id for job_id in job_ids if job_id not in ends])
        raise
    jobs = [ends[job_id] for job_id in dict.fromkeys(job_ids)]
    if not as_json:
        for job in jobs:
            print_job(job, as_json)
    return jobs


def states(client: Client, job_ids: Sequence[str], clock: Callable[[], float] = time.monotonic) -> Iterator[Job]:
    """Each state of each job as it is seen, until all have ended. Raises `UnknownJob`.

    An outage after the first answer is ridden out for a while before `StoreUnavailable`.
    """
    live = list(dict.fromkeys(job_ids))
    reached_at = clock() - _PATIENCE_S
    while live:
        for job_id in tuple(live):
            try:
                job = client.get(job_id)
            except StoreUnavailable:
                if clock() - reached_at > _PATIENCE_S:
                    raise
                break
            reached_at = clock()
            yield job
            if job.status.is_terminal:
                live.remove(job_id)
        if live:
            time.sleep(_INTERVAL_S)


def _say_goodbye(job_ids: Sequence[str]) -> None:
    if job_ids:
        which = "the job goes on" if len(job_ids) == 1 else f"{len(job_ids)} jobs go on"
        note(f"\n{which}; to come back: safelight watch {shlex.join(job_ids)}")
        note(f"to end it instead: safelight abort {shlex.join(job_ids)}")

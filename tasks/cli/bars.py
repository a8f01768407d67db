"""The bars of `watch` on a terminal, with rich, on stderr."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tasks.cli.board import described, stage_of, title_of
from tasks.job import Job

_COLOURS = {"succeeded": "green", "failed": "red", "aborted": "yellow", "queued": "bright_black"}


class BarBoard:
    """One bar a job, in order of first sight. A screen that is too low shows the live jobs first."""

    def __init__(self, num_jobs: int, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        self._hides_ended = num_jobs > console.height - 2
        self._bars: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}"),
            TextColumn("{task.fields[more]}", style="bright_black"),
            TimeElapsedColumn(),
            console=console,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._progress.stop()

    def show(self, job: Job) -> None:
        bar = self._bars.get(job.id)
        if bar is None:
            bar = self._bars[job.id] = self._progress.add_task(
                escape(f"{title_of(job):34}"), total=1.0, state="", more=""
            )
        state = stage_of(job)
        colour = _COLOURS.get(job.status.value, "cyan")
        self._progress.update(
            bar,
            completed=1.0 if job.status.is_terminal else job.progress.fraction,
            state=f"[{colour}]{state:9}[/]",
            more=escape(described(job)),
            visible=not (job.status.is_terminal and self._hides_ended),
        )
        if job.status.is_terminal:
            self._progress.stop_task(bar)

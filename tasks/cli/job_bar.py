"""One live job as one line of a screen of any width: what it is, a bar, where it is, what is known of the rest."""

from __future__ import annotations

from rich.text import Text

from tasks.cli.output import rest_of, shortened
from tasks.job import Job

COLOURS = {"succeeded": "green", "failed": "red", "aborted": "yellow", "queued": "bright_black", "running": "cyan"}
_BAR, _STAGE, _REST, _ID, _MAX_TITLE = 14, 17, 26, 26, 48
_GAP = "  "
#: From here on there is room for the whole id, which `abort` and `explain` want.
_WITH_ID = 118


def bar_line(job: Job, width: int) -> Text:
    """At most `width` characters; columns of two jobs stand below each other. A narrow screen loses the title first."""
    line = Text(no_wrap=True, overflow="crop")
    room = width - _BAR - _STAGE - _REST - 3 * len(_GAP)
    if width >= _WITH_ID:
        line.append(f"{job.id:{_ID}.{_ID}}{_GAP}", "bright_black")
        room -= _ID + len(_GAP)
    if room >= 8:
        size = min(room, _MAX_TITLE)
        line.append(f"{shortened(job.request.prompt, size):{size}}{_GAP}")
    line.append_text(_bar(1.0 if job.status.is_terminal else job.progress.fraction, COLOURS[job.status.value]))
    line.append(f"{_GAP}{stage_of(job):{_STAGE}}", COLOURS[job.status.value])
    line.append(f"{_GAP}{rest_of(job)}".rstrip(), "bright_black")
    line.truncate(width)
    return line


def stage_of(job: Job) -> str:
    progress = job.progress
    if job.status.value != "running":
        return job.status.value
    return f"{progress.stage} {progress.step}/{progress.num_steps}" if progress.num_steps else progress.stage


def _bar(fraction: float, colour: str) -> Text:
    done = round(_BAR * min(1.0, max(0.0, fraction)))
    return Text.assemble(("━" * done, colour), ("─" * (_BAR - done), "bright_black"))

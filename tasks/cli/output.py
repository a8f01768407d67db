"""How results look: JSON for machines, one line a job for people."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tasks.job import Job, JobMetrics

AsJson = Annotated[bool, typer.Option("--json", help="Machine output on stdout; notes go to stderr.")]


def print_json(value: object) -> None:
    """One value a line, so that a stream of them can be read line by line."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_job(job: Job, as_json: bool) -> None:
    if as_json:
        print_json(job.to_json())
        return
    for line in result_lines(job, screen_width()):
        print(line, flush=True)


def screen_width() -> int | None:
    """Characters of a line on stdout, if that is a terminal; nothing is cut for a file or another program."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def result_lines(job: Job, width: int | None = None) -> list[str]:
    """A job and what came of it: its line, then its outputs and what was changed in its input, each on its own."""
    outputs = [f"  {output.uri}  seed {output.seed}" for output in job.outputs]
    more = [f"  {shape_of(job)}  {outcome_of(job)}".rstrip()] if width is not None and width < _WIDE else []
    return [job_line(job, width), *more, *outputs, *(f"  note: {shortened(warning, 500)}" for warning in job.warnings)]


def job_line(job: Job, width: int | None = None) -> str:
    """Id, status, what was asked for and what came of it, in one line without line breaks.

    Of at most `width` characters: a narrow one goes without the shape, and keeps a piece of the prompt.
    """
    if width is None:
        parts = [job.id, f"{job.status.value:9}", shape_of(job), outcome_of(job), _quoted(job, 60)]
        return "  ".join(part for part in parts if part)
    is_narrow = width < _WIDE
    parts = (
        [f"{job.id:26}", f"{job.status.value:9}"]
        if is_narrow
        else [job.id, f"{job.status.value:9}", f"{shape_of(job):19}"]
    )
    room = width - len("  ".join(parts)) - 2
    said = took(job.metrics) if is_narrow and job.status.value in ("succeeded", "aborted") else outcome_of(job)
    outcome = shortened(said, max(10, room - 22 if is_narrow or job.error else room))
    outcome = f"{outcome:{18 if is_narrow else 31}}"  # what follows stands below each other
    left = room - len(outcome) - 4
    return "  ".join(part for part in (*parts, outcome, _quoted(job, left) if left >= 6 else "") if part)[
        :width
    ].rstrip()


#: Columns from which on a line of a job has room for its shape.
_WIDE = 100


def _quoted(job: Job, width: int) -> str:
    return f'"{shortened(job.request.prompt, width)}"'


def shape_of(job: Job) -> str:
    request = job.request
    outputs = f" ×{request.num_outputs}" if request.num_outputs > 1 else ""
    return f"{request.width}×{request.height}{outputs} {request.num_inference_steps} steps"


def outcome_of(job: Job) -> str:
    if job.status.value == "running":
        step = f" {job.progress.step}/{job.progress.num_steps}" if job.progress.num_steps else ""
        doing = job.progress.detail or f"{job.progress.stage}{step}"
        return ", ".join(part for part in (doing, rest_of(job)) if part)
    return rest_of(job)


def rest_of(job: Job) -> str:
    """What is known besides the stage: a wish to end, the place in the queue, the time left, the attempt; of an ended
    job its end."""
    if job.status.value == "failed" and job.error is not None:
        return f"{job.error.type}: {shortened(job.error.message, 120)}"
    if job.status.is_terminal:
        return times_of(job.metrics)
    progress = job.progress
    place = {None: "", 0: "next"}.get(progress.queue_position, f"{progress.queue_position} ahead")
    eta = "" if progress.eta_s is None else f"about {duration(progress.eta_s)}"
    attempt = f"attempt {job.attempt + (job.status.value == 'queued')}" if _is_again(job) else ""
    parts = ("aborting", attempt) if job.abort_requested else (place, eta, attempt)
    return ", ".join(part for part in parts if part)


def _is_again(job: Job) -> bool:
    return job.attempt > (0 if job.status.value == "queued" else 1)


def duration(seconds: float) -> str:
    """`8 s`, `3 min`, `1.5 h`: as precise as a guess is."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3_600:.1f} h"


def took(metrics: JobMetrics) -> str:
    return "" if metrics.total_ms is None else f"{metrics.total_ms / 1000:.1f} s"


def times_of(metrics: JobMetrics) -> str:
    parts = [took(metrics)] if metrics.total_ms is not None else []
    if metrics.queue_ms is not None:
        parts.append(f"queued {metrics.queue_ms / 1000:.1f} s")
    if metrics.batch_size_mean is not None:
        parts.append(f"batch {metrics.batch_size_mean:.1f}")
    return ", ".join(parts)


def shortened(text: str, width: int) -> str:
    """One line of at most `width` characters, without control characters: a prompt is somebody else's text."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def print_table(rows: list[Mapping[str, Any]], width: int | None = None) -> None:
    """Columns as wide as their widest value, under the first row's keys; if that exceeds `width`, a block a row."""
    if not rows:
        return
    heads = list(rows[0])
    lines = [heads, *([str(row[head]) for head in heads] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    if width is not None and sum(widths) + 2 * (len(widths) - 1) > width:
        _print_blocks(heads, lines[1:])
        return
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _print_blocks(heads: list[str], rows: list[list[str]]) -> None:
    size = max(map(len, heads))
    for number, row in enumerate(rows):
        print(
            "\n" * (number > 0) + "\n".join(f"{head:{size}}  {value}" for head, value in zip(heads, row, strict=True))
        )

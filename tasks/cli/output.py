"""How results look: JSON for machines, one line a job for people."""

from __future__ import annotations

import json
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
    print(job_line(job), flush=True)
    for output in job.outputs:
        print(f"  {output.uri}  seed {output.seed}")
    for warning in job.warnings:
        print(f"  note: {warning}")


def job_line(job: Job) -> str:
    """Id, status, what was asked for and what came of it, in one line without line breaks."""
    parts = [job.id, f"{job.status.value:9}", shape_of(job), outcome_of(job), f'"{shortened(job.request.prompt, 60)}"']
    return "  ".join(part for part in parts if part)


def shape_of(job: Job) -> str:
    request = job.request
    outputs = f" ×{request.num_outputs}" if request.num_outputs > 1 else ""
    return f"{request.width}×{request.height}{outputs} {request.num_inference_steps} steps"


def outcome_of(job: Job) -> str:
    progress = job.progress
    match job.status.value:
        case "queued":
            place = "" if progress.queue_position is None else f"{progress.queue_position} ahead"
            eta = "" if progress.eta_s is None else f"about {progress.eta_s:.0f} s"
            return ", ".join(part for part in (place, eta) if part)
        case "running":
            return f"{progress.stage} {progress.step}/{progress.num_steps}"
        case "failed" if job.error is not None:
            return f"{job.error.type}: {shortened(job.error.message, 120)}"
        case _:
            return times_of(job.metrics)


def times_of(metrics: JobMetrics) -> str:
    parts = []
    if metrics.total_ms is not None:
        parts.append(f"{metrics.total_ms / 1000:.1f} s")
    if metrics.queue_ms is not None:
        parts.append(f"queued {metrics.queue_ms / 1000:.1f} s")
    if metrics.batch_size_mean is not None:
        parts.append(f"batch {metrics.batch_size_mean:.1f}")
    return ", ".join(parts)


def shortened(text: str, width: int) -> str:
    """One line of at most `width` characters, without control characters: a prompt is somebody else's text."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def print_table(rows: list[Mapping[str, Any]]) -> None:
    """Columns as wide as their widest value; the first row's keys are the heads."""
    if not rows:
        return
    heads = list(rows[0])
    lines = [heads, *([str(row[head]) for head in heads] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())

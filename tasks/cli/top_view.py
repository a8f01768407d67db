"""A look as the lines of a screen, of any size. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rich.text import Text

from tasks.beats import silent_s, state_of
from tasks.cli.job_bar import COLOURS, bar_line
from tasks.cli.output import duration, job_line, shortened
from tasks.cli.top_look import Look
from tasks.store import QueueStats

_GAP = "  "
_STATES = {"ready": "green", "draining": "yellow", "silent": "red"}
#: Running jobs get their lines before ended ones, which keep these at least.
_MIN_ENDED = 3


def frame(look: Look, width: int, height: int | None = None, trouble: str = "") -> list[Text]:
    """At most `height` lines of at most `width` characters; without a height all there is, and no keys are told."""
    head = [
        _title(look, width, "" if height is None else "  q: quit"),
        *([Text(f"{trouble}; trying again", "red")] if trouble else []),
    ]
    parts = [*head, *_section("queues", _queues(look.queues)), *_section("workers", _workers(look.workers))]
    running = [bar_line(job, width) for job in look.running]
    ended = [Text(job_line(job, width), COLOURS[job.status.value]) for job in look.ended]
    if height is not None:
        room = max(0, height - len(parts) - 4 - min(_MIN_ENDED, len(ended)))
        if len(running) > room:
            running = [*running[: max(0, room - 1)], Text(f"and {len(look.running) - max(0, room - 1)} more")]
    parts += [*_section(f"running ({len(look.running)})", running), *_section("last ended", ended)]
    for line in parts:
        line.no_wrap, line.overflow = True, "crop"
        line.truncate(width)
    return list(islice(parts, height))


def _title(look: Look, width: int, keys: str) -> Text:
    num_queued, num_workers = sum(queue.queued for queue in look.queues), len(look.workers)
    workers = f"{num_workers} worker{'s' * (num_workers != 1)}"
    left = f"safelight  {workers}, {num_queued} queued, {len(look.running)} running"
    right = f"{look.at.astimezone():%H:%M:%S}{keys}"
    return Text(f"{left:{max(0, width - len(right) - 1)}} {right}", "reverse")


def _section(name: str, lines: Sequence[Text]) -> Iterator[Text]:
    yield Text("")
    yield Text(name.upper() if lines else f"{name.upper()}  none", "bold")
    yield from lines


def _queues(queues: Sequence[QueueStats]) -> list[Text]:
    rows = [
        [
            queue.model,
            f"{queue.queued} queued",
            f"{queue.running} running",
            "" if queue.oldest_s is None else f"oldest waits {duration(queue.oldest_s)}",
            ", ".join(f"{each.queued} of priority {each.priority}" for each in queue.priorities[:4]),
        ]
        for queue in queues
    ]
    return [Text(line) for line in _aligned(rows)]


def _workers(workers: Sequence[Mapping[str, Any]]) -> list[Text]:
    rows, states = [], []
    for worker in workers:
        for name, model in (worker.get("models") or {"": {}}).items():
            rows.append([*_worker(worker), *_model(name, model)])
            states.append("silent" if silent_s(worker) else str(worker.get("state")))
    return [Text(line, _STATES.get(state, "")) for line, state in zip(_aligned(rows), states, strict=True)]


def _worker(worker: Mapping[str, Any]) -> list[str]:
    jobs = worker.get("jobs") or 0
    return [shortened(str(worker.get("name")), 24), state_of(worker), f"{jobs} job{'s' * (jobs != 1)}"]


def _model(name: str, model: Mapping[str, Any]) -> list[str]:
    """A model as its worker tells of it: the fill of its batch, the time of a step, the device's memory."""
    rows, max_rows = model.get("running_rows"), (model.get("speed") or {}).get("max_rows")
    step_ms, memory = model.get("step_ms"), model.get("memory")
    used = None if not memory else (memory["used_bytes"], memory["used_bytes"] + memory["free_bytes"])
    return [
        " ".join(part for part in (name, str(model.get("mode") or _place(model))) if part),
        "" if rows is None else f"batch {_fill(rows, max_rows)}",
        "" if step_ms is None else f"{step_ms:.0f} ms a step",
        str(model.get("device") or "") if used is None else f"{used[0] / 2**30:.1f}/{used[1] / 2**30:.0f} GiB",
    ]


def _place(model: Mapping[str, Any]) -> str:
    """Of a model that is not in memory: loading, leaving, out, failed."""
    return "" if model.get("state") == "loaded" else str(model.get("state") or "")


def _fill(rows: int, max_rows: int | None) -> str:
    if not max_rows:
        return f"{rows} rows"
    cells, now = min(8, max_rows), min(rows, max_rows)
    done = round(cells * now / max_rows)
    more = f" +{rows - now}" if rows > now else ""  # step mode keeps more rows under way than a forward takes
    return f"{'▮' * done}{'▯' * (cells - done)} {now}/{max_rows}{more}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        _GAP.join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True) if width).rstrip() for row in rows
    ]

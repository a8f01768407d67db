"""The tables as Markdown, ready for `bench/README.md`. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.peers.abort_figures import Trial, outcome
from bench.peers.enqueue_figures import Cost
from bench.peers.figures import Cell

OURS = "safelight"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def load_table(cells: Sequence[Cell], serial_s: float, serial_cpu_s: float) -> str:
    """Latencies and CPU in services: 1 is what one request takes alone on the bare pipeline, in the mean."""
    head = ["rate", "system", "images/s", "mean", "p50", "p95", "p99", "idle", "CPU", "mean / best peer's", "pictures"]
    rows = []
    for cell in cells:
        peers = [one.mean_s for one in cells if one.rate == cell.rate and one.system != OURS]
        rows.append(
            [
                f"{cell.rate:g}",
                f"**{cell.system}**" if cell.system == OURS else cell.system,
                f"{cell.images_per_s * serial_s:.2f}",
                *(f"{value / serial_s:.2f}" for value in (cell.mean_s, cell.p50_s, cell.p95_s, cell.p99_s)),
                f"{cell.idle_share:.0%}",
                f"{cell.cpu_s_per_image / serial_cpu_s:.2f}",
                f"{cell.mean_s / min(peers):.2f}" if peers else "",
                _pictures(cell),
            ]
        )
    return table(head, rows)


def _pictures(cell: Cell) -> str:
    faults = [f"{cell.wrong} differ"] * bool(cell.wrong) + [f"{cell.missing} missing"] * bool(cell.missing)
    return ", ".join(faults) or "equal"


def abort_table(trials: Sequence[Trial]) -> str:
    """A row for each system, a column for each depth; what cannot be done is said in words."""
    depths = sorted({trial.depth for trial in trials})
    head = ["system", "how", *(f"{depth} in flight" for depth in depths)]
    rows = []
    for system in dict.fromkeys(trial.system for trial in trials):
        of_system = [trial for trial in trials if trial.system == system]
        at_depths = [[trial for trial in of_system if trial.depth == depth] for depth in depths]
        name = f"**{system}**" if system == OURS else system
        rows.append([name, of_system[0].how, *(outcome(some) for some in at_depths)])
    return table(head, rows)


def enqueue_table(costs: Sequence[Cost]) -> str:
    """Beside plain Celery's `apply_async`, whose CPU is 1."""
    head = [
        "call",
        "jobs",
        "CPU, ms a job",
        "/ `apply_async`",
        "Redis' CPU, ms",
        "round trips",
        "commands",
        "bytes held",
    ]
    plain = next((cost.cpu_ms for cost in costs if cost.call == "celery `apply_async`"), None)
    rows = []
    for cost in costs:
        ratio = "" if plain is None else f"{cost.cpu_ms / plain:.2f}"
        rows.append(
            [
                cost.call,
                f"{cost.jobs:,}".replace(",", " "),
                f"{cost.cpu_ms:.3f}",
                ratio,
                f"{cost.redis_cpu_ms:.3f}",
                f"{cost.round_trips:.2f}",
                f"{cost.commands:.1f}",
                f"{cost.memory_bytes:.0f}",
            ]
        )
    return table(head, rows)

"""The figures of several ranks as those of one engine. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..device_memory import DeviceMemory
from ..stats import ROWS_BOUNDS, STEP_BOUNDS_S, EngineStats, RunningGroup


def merged_stats(ranks: Sequence[EngineStats], idle: EngineStats) -> EngineStats:
    """Sums; a step's time and rows are means over the ranks that had one. `idle` has what the engine itself knows:
    names, state, `max_rows`, and the rows that wait in front."""
    batches, batch_rows = sum(one.batches for one in ranks), sum(one.batch_rows for one in ranks)
    timed = [one for one in ranks if one.step_ms is not None]
    return EngineStats(
        waiting_rows=idle.waiting_rows + sum(one.waiting_rows for one in ranks),
        running_rows=sum(one.running_rows for one in ranks),
        batches=batches,
        rows_done=sum(one.rows_done for one in ranks),
        mean_batch_rows=batch_rows / batches if batches else 0.0,
        step_ms=sum(one.step_ms or 0.0 for one in timed) / len(timed) if timed else None,
        step_rows=sum(one.step_rows for one in timed) / len(timed) if timed else 1.0,
        device=idle.device,
        dtype=idle.dtype,
        model=idle.model,
        mode=idle.mode,
        state=idle.state,
        max_rows=idle.max_rows,
        batch_rows=batch_rows,
        step_seconds=sum(one.step_seconds for one in ranks),
        step_counts=_sums([one.step_counts for one in ranks], len(STEP_BOUNDS_S) + 1),
        rows_counts=_sums([one.rows_counts for one in ranks], len(ROWS_BOUNDS) + 1),
    )


def merged_groups(ranks: Sequence[Sequence[RunningGroup]]) -> tuple[RunningGroup, ...]:
    """Alike on several ranks: one group."""
    merged: list[RunningGroup] = []
    for group in (group for groups in ranks for group in groups):
        mates = [other for other in merged if other.key == group.key]
        merged = [other for other in merged if other not in mates]
        merged.append(RunningGroup(group.rows + sum(other.rows for other in mates), group.key))
    return tuple(merged)


def merged_memory(devices: dict[str, DeviceMemory]) -> DeviceMemory | None:
    """Of different devices, by name."""
    if not devices:
        return None
    parts = devices.values()
    return DeviceMemory(sum(one.used_bytes for one in parts), sum(one.free_bytes for one in parts))


def _sums(rows: Sequence[Sequence[int]], length: int) -> tuple[int, ...]:
    return tuple(sum(row[i] for row in rows) for i in range(length))

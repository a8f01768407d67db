"""What an engine over ranks tells about itself: the latest beats of its ranks, and what lost ones had counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..adapter import Capabilities
from ..config import EngineConfig
from ..device_memory import DeviceMemory
from ..stats import EngineStats, RunningGroup
from .merged import merged_groups, merged_memory, merged_stats
from .rank import Rank


class Figures:
    """Read from any thread, single values that may be a beat old; `keep` is for the front's thread."""

    def __init__(self, config: EngineConfig, ranks: Sequence[Rank]) -> None:
        self._config = config
        self._ranks = ranks
        self._past: tuple[EngineStats, ...] = ()
        self.capabilities: Capabilities | None = None

    def keep(self, rank: Rank) -> None:
        """Before a rank is given up: what it counted stays counted."""
        stats = rank.beat.stats
        if stats is not None:
            counted = replace(stats, waiting_rows=0, running_rows=0, step_ms=None)
            self._past = (merged_stats((*self._past, counted), counted),)

    def stats(self, state: str, waiting_rows: int, max_rows: int) -> EngineStats:
        """`waiting_rows` are those in front, `max_rows` of the ranks that are up."""
        config, found = self._config, self.capabilities
        own = EngineStats(
            waiting_rows=waiting_rows,
            running_rows=0,
            batches=0,
            rows_done=0,
            mean_batch_rows=0.0,
            step_ms=None,
            device=found.device if found else ",".join(rank.device for rank in self._ranks),
            dtype=found.dtype if found else config.dtype,
            model=config.model,
            mode=found.mode if found else config.mode,
            state=state,
            max_rows=max_rows,
        )
        live = [rank.beat.stats for rank in self._ranks]
        return merged_stats([*self._past, *(stats for stats in live if stats is not None)], own)

    def groups(self) -> tuple[RunningGroup, ...]:
        return merged_groups([rank.beat.groups for rank in self._ranks])

    def memory(self) -> DeviceMemory | None:
        found = {rank.device: rank.beat.memory for rank in self._ranks}
        return merged_memory({device: memory for device, memory in found.items() if memory is not None})

"""What the store counts for each model, as fields of one hash: `created`, `stage denoise 7`, … Pure; no I/O.

Both stores add to the same fields, within the moves of a job, so that counting costs no round trip of its own. A
histogram is a field for each bucket that was hit (its number, from 0) and one for the sum, in microseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tasks.job import JobMetrics

#: Upper bounds of the buckets of stage and job times, in seconds; one more bucket takes what is above.
BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
STAGES = ("queue", "preprocess", "denoise", "decode", "upload")
_JOB = "job"


@dataclass(frozen=True, slots=True)
class Distribution:
    """Counts by bucket, the last one above every bound, and the sum of what was counted."""

    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class Count:
    """A counter of the store: which, of what model, told apart by `labels`."""

    name: str
    model: str
    labels: tuple[str, ...]
    value: int


def observations(metrics: JobMetrics) -> list[tuple[str, int]]:
    """What an attempt's times add to which fields."""
    found: list[tuple[str, int]] = []
    for stage in STAGES:
        found += _observed(f"stage {stage}", getattr(metrics, f"{stage}_ms"))
    found += _observed(_JOB, metrics.total_ms)
    if metrics.device_seconds:
        found.append(("device sum", round(metrics.device_seconds * 1e6)))
    return found


def _observed(name: str, ms: float | None) -> list[tuple[str, int]]:
    if ms is None:
        return []
    bucket = bisect_left(BOUNDS_S, ms / 1000)
    return [(f"{name} {bucket}", 1), (f"{name} sum", round(max(0.0, ms) * 1000))]


@dataclass(frozen=True, slots=True)
class Tally:
    """All that was counted: `{"tiny ended failed internal": 3, …}`, the model first."""

    fields: Mapping[str, int]

    def counts(self, name: str) -> Iterator[Count]:
        """Of a plain counter, for each model and each set of labels that it was ever counted for."""
        for field, value in self.fields.items():
            model, found, *labels = field.split(" ")
            if found == name:
                yield Count(name, model, tuple(labels), value)

    def device_seconds(self) -> Iterator[tuple[str, float]]:
        for count in self.counts("device"):
            yield count.model, count.value / 1e6

    def stage_times(self) -> Iterator[tuple[str, str, Distribution]]:
        """Model, stage and the distribution of its times in seconds."""
        for model in self.models:
            for stage in STAGES:
                if (times := self._distribution(f"{model} stage {stage}")) is not None:
                    yield model, stage, times

    def job_times(self) -> Iterator[tuple[str, Distribution]]:
        for model in self.models:
            if (times := self._distribution(f"{model} {_JOB}")) is not None:
                yield model, times

    @property
    def models(self) -> list[str]:
        return sorted({field.partition(" ")[0] for field in self.fields})

    def _distribution(self, prefix: str) -> Distribution | None:
        counts = tuple(self.fields.get(f"{prefix} {bucket}", 0) for bucket in range(len(BOUNDS_S) + 1))
        return Distribution(counts, self.fields.get(f"{prefix} sum", 0) / 1e6) if any(counts) else None

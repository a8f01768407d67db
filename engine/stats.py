"""What an engine tells about itself, and the counters behind it."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STEP_MS_SMOOTHING = 0.05
#: Upper bounds of the histograms: seconds of a step, rows of a batch or forward. One more bucket takes what is above.
STEP_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class RunningGroup:
    """Rows that are under way and alike in all that they must share; `key` says what that is, by name."""

    rows: int
    key: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A snapshot. `step_ms` is a moving average over denoise steps of a whole batch, None before the first.

    In step mode every denoise forward counts as a batch. `step_rows` is the same average of its rows. `step_counts` and
    `rows_counts` are how many fell into each bucket of `STEP_BOUNDS_S` and `ROWS_BOUNDS` since the start,
    `step_seconds` and `batch_rows` the sums. At most `max_rows` rows share a batch.
    """

    waiting_rows: int
    running_rows: int
    batches: int
    rows_done: int
    mean_batch_rows: float
    step_ms: float | None
    device: str
    dtype: str
    model: str
    mode: str
    state: str
    max_rows: int = 1
    step_rows: float = 1.0
    batch_rows: int = 0
    step_seconds: float = 0.0
    step_counts: tuple[int, ...] = ()
    rows_counts: tuple[int, ...] = ()


class Counters:
    """Written by the device thread alone; readers of other threads see single values that may be a step old."""

    def __init__(self) -> None:
        self.running_rows = 0
        self.batches = 0
        self.batch_rows = 0
        self.rows_done = 0
        self.step_ms: float | None = None
        self.step_rows = 1.0
        self.step_seconds = 0.0
        self.step_counts = [0] * (len(STEP_BOUNDS_S) + 1)
        self.rows_counts = [0] * (len(ROWS_BOUNDS) + 1)
        self._num_rows = 0

    def batch_started(self, num_rows: int) -> None:
        self.batches += 1
        self.batch_rows += num_rows
        self.rows_counts[bisect_left(ROWS_BOUNDS, num_rows)] += 1
        self._num_rows = num_rows

    def step_done(self, ms: float) -> None:
        """Of the batch that started last."""
        if self.step_ms is None:
            self.step_ms, self.step_rows = ms, float(self._num_rows)
        self.step_ms += STEP_MS_SMOOTHING * (ms - self.step_ms)
        self.step_rows += STEP_MS_SMOOTHING * (self._num_rows - self.step_rows)
        self.step_seconds += ms / 1000
        self.step_counts[bisect_left(STEP_BOUNDS_S, ms / 1000)] += 1

    @property
    def mean_batch_rows(self) -> float:
        return self.batch_rows / self.batches if self.batches else 0.0

"""What an engine tells about itself, and the counters behind it."""

from dataclasses import dataclass

STEP_MS_SMOOTHING = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A snapshot. `step_ms` is a moving average over denoise steps of a whole batch, None before the first.

    In step mode every denoise forward counts as a batch.
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


class Counters:
    """Written by the device thread alone; readers of other threads see single values that may be a step old."""

    def __init__(self) -> None:
        self.running_rows = 0
        self.batches = 0
        self.batch_rows = 0
        self.rows_done = 0
        self.step_ms: float | None = None

    def batch_started(self, num_rows: int) -> None:
        self.batches += 1
        self.batch_rows += num_rows

    def step_done(self, ms: float) -> None:
        mean = ms if self.step_ms is None else self.step_ms
        self.step_ms = mean + STEP_MS_SMOOTHING * (ms - mean)

    @property
    def mean_batch_rows(self) -> float:
        return self.batch_rows / self.batches if self.batches else 0.0

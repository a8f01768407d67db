"""The engine's stages of one request as spans, made from its events: the engine itself knows of no trace."""

from __future__ import annotations

from datetime import UTC, datetime

from engine import Aborted, Completed, Event, Failed, Progress, Started
from tasks.tracing import Tracing, Value

_NAMES = {"waiting": "wait for batch", "encoding": "encode prompt", "denoising": "denoise", "decoding": "decode"}
#: Outputs that go through the stages one after the other would make many.
_MAX_SPANS = 64


class StageSpans:
    """Tell it every event of the stream; its spans are written when the request ends, below the span that is open."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._stage, self._since = "waiting", datetime.now(UTC)
        self._spans: list[tuple[str, datetime, datetime]] = []
        self._rows = 0
        self._step = self._num_steps = 0

    def note(self, event: Event, latest: Progress | None = None) -> None:
        """`latest` is the progress that the stream knows; it comes before its end, and may be ahead of other events."""
        if not self._tracing.is_on:
            return
        match event:
            case Started(batch_rows=rows):
                self._rows = rows
                self._enter("encoding")
            case Progress(stage=stage, step=step, num_steps=num_steps):
                self._step, self._num_steps = step, num_steps
                self._enter(stage)
            case Completed() | Aborted() | Failed():
                if latest is not None:
                    self.note(latest)
                self._close(datetime.now(UTC))
                self._write(event)

    def _enter(self, stage: str) -> None:
        if stage != self._stage:
            now = datetime.now(UTC)
            self._close(now)
            self._stage, self._since = stage, now

    def _close(self, now: datetime) -> None:
        if len(self._spans) < _MAX_SPANS:
            self._spans.append((self._stage, self._since, now))

    def _write(self, end: Completed | Aborted | Failed) -> None:
        for number, (stage, since, until) in enumerate(self._spans):
            is_last = number == len(self._spans) - 1
            error = f"{end.error_type}: {end.message}" if is_last and isinstance(end, Failed) else None
            attributes = self._denoising(end) if stage == "denoising" else {}
            self._tracing.record(_NAMES[stage], since, until, attributes, error=error)

    def _denoising(self, end: Completed | Aborted | Failed) -> dict[str, Value]:
        found: dict[str, Value] = {"safelight.steps": self._step, "safelight.num_steps": self._num_steps}
        if (metrics := end.metrics) is not None:
            found |= {"safelight.batch_rows_mean": metrics.batch_rows_mean}
            found |= {"safelight.batch_rows_max": metrics.batch_rows_max}
            found |= {"safelight.device_seconds": metrics.device_seconds}
        return found | {"safelight.batch_rows_first": self._rows}

"""The stages of a request as spans, however late its events are read."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from engine import Event, Failed, Progress, Started
from tasks.otel import OtelTracing
from worker.stage_spans import StageSpans

EVENTS: tuple[Event, ...] = (
    Started("a", 2),
    Progress("a", "encoding", 0, 4),
    Progress("a", "denoising", 0, 4),
    Failed("a", "model_error", "no luck"),
)
STAGES = ["wait for batch", "encode prompt", "denoise"]


def spans_of(latest_at: dict[int, Progress]) -> InMemorySpanExporter:
    """With what the stream knew as latest progress when the event of that number was read."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = StageSpans(OtelTracing(provider))
    for number, event in enumerate(EVENTS):
        spans.note(event, latest_at.get(number))
    return exporter


def test_events_read_after_the_end_make_the_same_spans() -> None:
    """A reader that comes late finds the last progress before the first event."""
    last = Progress("a", "denoising", 3, 4)
    for late in ({3: last}, dict.fromkeys(range(4), last), {2: last, 3: last}):
        written = spans_of(late).get_finished_spans()
        assert [span.name for span in written] == STAGES
        assert dict(written[-1].attributes or {})["safelight.steps"] == 3


def test_a_stage_that_no_event_told_is_there() -> None:
    written = spans_of({3: Progress("a", "decoding", 4, 4)}).get_finished_spans()
    assert [span.name for span in written] == [*STAGES, "decode"]

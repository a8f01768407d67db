"""`Tracing` over OpenTelemetry. The only module that imports its SDK; needs the extra `otel`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

from opentelemetry import context as otel_context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Span as OtelApiSpan
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tasks.redaction import mask
from tasks.tracing import Kind, Span, Tracing, Value

_KINDS: dict[Kind, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
    "client": SpanKind.CLIENT,
}
_propagator = TraceContextTextMapPropagator()


class OtelSpan:
    def __init__(self, span: OtelApiSpan) -> None:
        self._span = span

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def set(self, name: str, value: Value | None) -> None:
        if value is not None:
            self._span.set_attribute(name, value)

    def fail(self, message: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR, mask(message)))


class OtelTracing:
    """Hands every span to one provider, which samples and exports as the `OTEL_*` variables say."""

    is_on = True

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("safelight")

    @contextmanager
    def span(
        self, name: str, attributes: Mapping[str, Value] = {}, *, parent: str | None = None, kind: Kind = "internal"
    ) -> Iterator[Span]:
        started = self._tracer.start_as_current_span(
            name,
            _context(parent),
            kind=_KINDS[kind],
            attributes=dict(attributes),
            record_exception=False,
            set_status_on_exception=False,
        )
        with started as otel_span:
            span = OtelSpan(otel_span)
            try:
                yield span
            except Exception as error:
                otel_span.set_attribute("error.type", type(error).__name__)
                span.fail(f"{type(error).__name__}: {error}")
                raise

    def record(
        self,
        name: str,
        start: datetime,
        end: datetime,
        attributes: Mapping[str, Value] = {},
        *,
        parent: str | None = None,
        error: str | None = None,
    ) -> None:
        span = self._tracer.start_span(name, _context(parent), attributes=dict(attributes), start_time=_ns(start))
        if error is not None:
            OtelSpan(span).fail(error)
        span.end(_ns(max(start, end)))

    def close(self) -> None:
        self._provider.shutdown()


def otel_tracing(service: str) -> Tracing:
    """Raises ImportError if the exporter that is asked for is not installed."""
    is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    provider = TracerProvider(resource=Resource.create({} if is_named else {"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(_exporter()))
    return OtelTracing(provider)


def _exporter() -> SpanExporter:
    if os.environ.get("OTEL_TRACES_EXPORTER") == "console":
        return ConsoleSpanExporter()
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        exporter: SpanExporter = GrpcExporter()
        return exporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _context(parent: str | None) -> otel_context.Context | None:
    return None if parent is None else _propagator.extract({"traceparent": parent}, otel_context.Context())


def _ns(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6) * 1000

"""Spans as the rest of the code sees them: an interface, nothing by default, OpenTelemetry where it is set up."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Literal, Protocol

log = logging.getLogger(__name__)

Value = str | bool | int | float
Kind = Literal["internal", "server", "producer", "consumer", "client"]
_WISHES = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class Span(Protocol):
    def rename(self, name: str) -> None: ...

    def set(self, name: str, value: Value | None) -> None:
        """An attribute; None sets nothing."""

    def fail(self, message: str) -> None:
        """It ends in an error that nobody raises."""


class Tracing(Protocol):
    @property
    def is_on(self) -> bool: ...

    def span(
        self, name: str, attributes: Mapping[str, Value] = {}, *, parent: str | None = None, kind: Kind = "internal"
    ) -> AbstractContextManager[Span]:
        """Open while the context lasts; what is opened here meanwhile is below it. An exception ends it as failed.

        `parent` is a traceparent; without it the span that is open here is the parent.
        """

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
        """A span that is over already."""

    def close(self) -> None:
        """Send what has not been sent yet."""


class _NoSpan:
    def __enter__(self) -> Span:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def rename(self, name: str) -> None: ...

    def set(self, name: str, value: Value | None) -> None: ...

    def fail(self, message: str) -> None: ...


class NoTracing:
    is_on = False

    def span(
        self, name: str, attributes: Mapping[str, Value] = {}, *, parent: str | None = None, kind: Kind = "internal"
    ) -> AbstractContextManager[Span]:
        return _NO_SPAN

    def record(
        self,
        name: str,
        start: datetime,
        end: datetime,
        attributes: Mapping[str, Value] = {},
        *,
        parent: str | None = None,
        error: str | None = None,
    ) -> None: ...

    def close(self) -> None: ...


_NO_SPAN = _NoSpan()
NO_TRACING = NoTracing()


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether the standard `OTEL_*` variables ask for traces."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if environment.get("OTEL_TRACES_EXPORTER", "").lower() == "none":
        return False
    return any(environment.get(name) for name in _WISHES)


def tracing_from_environment(service: str) -> Tracing:
    """OpenTelemetry if `OTEL_*` ask for it and the extra is installed; otherwise nothing, and nothing is imported."""
    if not is_wanted(os.environ):
        return NO_TRACING
    try:
        from tasks.otel import otel_tracing
    except ImportError as error:
        log.warning("OTEL_* ask for traces, but %s is not installed: pip install 'safelight[otel]'", error.name)
        return NO_TRACING
    return otel_tracing(service)

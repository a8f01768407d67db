"""The trace that a call belongs to, as a W3C traceparent. Nothing of OpenTelemetry is imported for it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_incoming: ContextVar[str | None] = ContextVar("traceparent", default=None)


def valid_traceparent(text: str | None) -> str | None:
    """The header if it is one of https://www.w3.org/TR/trace-context/, else None."""
    match = _FORM.fullmatch((text or "").strip())
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
        return None
    return None if not int(match[2], 16) or not int(match[3], 16) else "-".join(match.groups()[:4])


def trace_id_of(traceparent: str) -> str:
    return traceparent.split("-")[1]


@contextmanager
def joining(traceparent: str | None) -> Iterator[None]:
    """Jobs that are submitted meanwhile by this thread or task belong to that trace."""
    token = _incoming.set(valid_traceparent(traceparent))
    try:
        yield
    finally:
        _incoming.reset(token)


def traceparent_here() -> str | None:
    """Of the span that is open here, whoever opened it; else what `joining` says."""
    trace = sys.modules.get("opentelemetry.trace")  # whoever opened a span has imported it
    if trace is not None:
        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return _incoming.get()

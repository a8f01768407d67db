"""ASGI middleware: a caller's traceparent is honoured, and a span covers the request where tracing is set up."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api_stub.metrics import route_of
from tasks.logs import about
from tasks.trace_context import joining, traceparent_here, valid_traceparent
from tasks.tracing import Tracing

#: Probes, scrapes and files: many, and of no interest.
_UNTRACED = ("/healthz", "/readyz", "/metrics", "/page/")


class TraceRequests:
    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_UNTRACED):
            await self._app(scope, receive, send)
            return
        parent = _traceparent(scope)
        method = scope["method"]
        with self._tracing.span(method, {"http.request.method": method}, parent=parent, kind="server") as span:

            async def observe(message: Message) -> None:
                if message["type"] == "http.response.start":
                    route, status = route_of(scope), message["status"]
                    span.rename(f"{method} {route}")
                    span.set("http.route", route)
                    span.set("http.response.status_code", status)
                    if status >= 500:
                        span.fail(f"status {status}")
                await send(message)

            with joining(parent), about(trace=traceparent_here()):
                await self._app(scope, receive, observe)


def _traceparent(scope: Scope) -> str | None:
    values = [value for name, value in scope["headers"] if name == b"traceparent"]
    return valid_traceparent(values[0].decode("latin-1")) if len(values) == 1 else None

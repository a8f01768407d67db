"""Log lines of our processes: text or JSON, each with the job that it is about, none with a secret."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import IO, Any

from tasks.job import rfc3339
from tasks.redaction import Redactor, secrets_of
from tasks.settings import Settings
from tasks.trace_context import trace_id_of

#: What a line says besides its text, if it is known; `extra=` of a log call says it too.
FIELDS = ("job_id", "attempt", "worker", "model", "trace_id")
#: Loggers that tell of every task, request or signature: warnings only.
_CHATTY = ("botocore", "celery.app.trace", "celery.worker.strategy", "httpx", "httpcore", "urllib3", "opentelemetry")
_about: ContextVar[Mapping[str, object]] = ContextVar("about", default={})  # noqa: B039  (never changed in place)


@contextmanager
def about(*, trace: str | None = None, **fields: object) -> Iterator[None]:
    """Lines that this thread or task logs meanwhile are about this job; `trace` is its traceparent."""
    known = {name: value for name, value in fields.items() if value is not None}
    trace_id = {} if trace is None else {"trace_id": trace_id_of(trace)}
    token = _about.set({**_about.get(), **known, **trace_id})
    try:
        yield
    finally:
        _about.reset(token)


class LineFormatter(logging.Formatter):
    """`constant` is said in every line."""

    def __init__(self, redact: Redactor, constant: Mapping[str, object]) -> None:
        super().__init__()
        self._redact = redact
        self._constant = constant

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(self.line(record))

    def line(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in self.fields(record).items())
        moment = rfc3339(datetime.fromtimestamp(record.created, UTC))
        text = f"{moment} {record.levelname} {record.name}: {record.getMessage()}"
        trace = self.trace(record)
        return f"{text}{' |' if fields else ''}{fields}" + (f"\n{trace}" if trace else "")

    def fields(self, record: logging.LogRecord) -> dict[str, object]:
        said = {
            **self._constant,
            **_about.get(),
            **{name: record.__dict__[name] for name in FIELDS if name in record.__dict__},
        }
        return {name: said[name] for name in FIELDS if said.get(name) is not None}

    def trace(self, record: logging.LogRecord) -> str:
        parts = [self.formatException(record.exc_info)] if record.exc_info and record.exc_info[0] else []
        parts += [self.formatStack(record.stack_info)] if record.stack_info else []
        return "\n".join(parts)


class JsonFormatter(LineFormatter):
    """One JSON object a line."""

    def line(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": rfc3339(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.fields(record),
        }
        if trace := self.trace(record):
            said["exception"] = trace
        return json.dumps(said, ensure_ascii=False, default=str)


def configure_logs(settings: Settings, stream: IO[str] | None = None, **constant: object) -> None:
    """All loggers of this process write through one handler; what nobody catches is logged too."""
    make = JsonFormatter if settings.log_format == "json" else LineFormatter
    handler = logging.StreamHandler(stream)
    handler.setFormatter(make(Redactor(secrets_of(settings, os.environ)), constant))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    for chatty in _CHATTY:
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLogger().level))
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda args: _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)


def _log_uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if error is None or isinstance(error, KeyboardInterrupt | SystemExit):
        return
    logging.getLogger("uncaught").critical("%s", kind.__name__, exc_info=(kind, error, trace))

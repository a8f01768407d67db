"""The span of a whole attempt, and of the wait before it, in the trace of whoever submitted the job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tasks.store import Claimed
from tasks.tracing import Span, Tracing, Value
from worker.verdict import Abandon, Finish, LetGo, Retry, Verdict


@contextmanager
def attempt_span(tracing: Tracing, claimed: Claimed, worker: str) -> Iterator[Span]:
    """Opens the attempt's span; the wait is over and written at once."""
    job = claimed.job
    attributes: dict[str, Value] = {
        "safelight.job_id": job.id,
        "safelight.attempt": claimed.attempt,
        "safelight.model": job.request.model or "",
        "safelight.worker": worker,
    }
    if tracing.is_on and claimed.queued_at is not None and job.started_at is not None:
        tracing.record("queue wait", claimed.queued_at, job.started_at, attributes, parent=claimed.trace)
    with tracing.span("attempt", attributes, parent=claimed.trace, kind="consumer") as span:
        yield span


def tell_end(span: Span, verdict: Verdict, word: str) -> None:
    span.set("safelight.outcome", word)
    match verdict:
        case Finish(outcome) if outcome.error is not None:
            span.fail(f"{outcome.error.type}: {outcome.error.message}")
        case Retry(error):
            span.fail(f"{error.type}: {error.message}")
        case LetGo() | Abandon():
            span.fail(word)

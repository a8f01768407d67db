"""An attempt's verdict becomes the job's record, however long Redis is away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tasks.errors import StoreUnavailable
from tasks.hints import Hinter
from tasks.job import JobStatus, Output
from tasks.store import Hint, JobStore, Written
from tasks.tracing import Tracing
from worker.account import batching
from worker.attempt import Attempt, Attempts, Stop
from worker.checkpoints import Checkpoints
from worker.uploads import Uploader
from worker.verdict import Abandon, Finish, GiveBack, LetGo, Retry, Verdict, accounted, stopped

log = logging.getLogger(__name__)

PAUSE_S = 0.5


class Settler:
    def __init__(
        self,
        store: JobStore,
        hinter: Hinter,
        uploader: Uploader,
        checkpoints: Checkpoints,
        *,
        max_attempts: int,
        lease_s: float,
        draining: Callable[[], bool],
        tracing: Tracing,
        attempts: Attempts,
    ) -> None:
        self._attempts = attempts
        self._store = store
        self._hinter = hinter
        self._uploader = uploader
        self._checkpoints = checkpoints
        self._max_attempts = max_attempts
        self._lease_s = lease_s
        self._draining = draining
        self._tracing = tracing

    def settle(self, attempt: Attempt, verdict: Verdict, outputs: tuple[Output, ...]) -> str:
        """Write the verdict, however long the store is away; a stop that came before overrules it.

        One that comes after a try does not: the try may have arrived, and then the record names the outputs. Only the
        store's own answer tells whether they may be deleted.
        """
        away_since: float | None = None
        while True:
            if away_since is None:
                verdict = accounted(
                    _overruled(attempt, verdict),
                    attempt.metrics(),
                    batching(attempt.times, self._attempts.mates(attempt)),
                )
            try:
                with self._tracing.span("finish", {"safelight.verdict": type(verdict).__name__}, kind="client"):
                    word, keeps_outputs = self._write(attempt, verdict)
            except StoreUnavailable:
                away_since = away_since or time.monotonic()
                if self._draining() and time.monotonic() - away_since > self._lease_s:
                    log.warning("job %s attempt %d: left to its lease, the store is away", *attempt.key)
                    return "unsettled"
                time.sleep(PAUSE_S)
                continue
            self._clear_up(attempt, verdict, word, () if keeps_outputs else outputs)
            log.info("job %s attempt %d: %s", attempt.job.id, attempt.number, word)
            return word

    def _write(self, attempt: Attempt, verdict: Verdict) -> tuple[str, bool]:
        """Returns a word for the log, and whether the record now names the outputs."""
        job_id, number = attempt.key
        match verdict:
            case Finish(outcome):
                written = self._store.finish(job_id, number, outcome)
                done = written is Written.OK
                return (outcome.status.value if done else written.value), done and bool(outcome.outputs)
            case Retry(error, trace):
                answer = self._store.retry(
                    job_id, number, error, self._max_attempts, attempt.metrics(), traceback=trace
                )
                if answer is JobStatus.QUEUED:
                    self._hint(attempt)
                return answer.value, False
            case GiveBack():
                written = self._store.release(job_id, number)
                if written is Written.OK:
                    self._hint(attempt)
                return "given back" if written is Written.OK else written.value, False
            case LetGo():
                return "lease lost", False
            case Abandon():
                return "abandoned: its device broke", False

    def _clear_up(self, attempt: Attempt, verdict: Verdict, word: str, outputs: tuple[Output, ...]) -> None:
        self._uploader.discard(outputs)
        if isinstance(verdict, Finish) and word != Written.FENCED:  # else both belong to the attempt that runs now
            self._checkpoints.forget(attempt)
            error = verdict.outcome.error
            self._uploader.unpack(attempt, for_a_retry=error is not None and error.type == "upload_failed")

    def _hint(self, attempt: Attempt) -> None:
        request = attempt.job.request
        assert request.model is not None
        self._hinter.publish([Hint(attempt.job.id, request.model, request.priority)])


def _overruled(attempt: Attempt, verdict: Verdict) -> Verdict:
    return verdict if attempt.reason in (None, Stop.DRAIN) else stopped(attempt.reason)

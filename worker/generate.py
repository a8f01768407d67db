"""A job's life in this process, from its turn to its outcome, as one plain story: claim, render, store, settle."""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from engine import Aborted, DiffusionEngine, EngineClosed, EngineDead, Failed
from tasks.artifacts import UploadFailed
from tasks.errors import InvalidRequest, StoreUnavailable
from tasks.hints import Hinter
from tasks.inputs import InputLoader
from tasks.job import JobStatus, Output
from tasks.redaction import Redactor, kept_traceback
from tasks.store import Claimed, JobStore, NotClaimed, Outcome
from tasks.trace_context import traceparent_here
from tasks.tracing import NO_TRACING, Tracing
from worker.attempt import Attempt, Attempts, Late, Stop, Stopped
from worker.attempt_span import attempt_span, tell_end
from worker.checkpoints import Checkpoints
from worker.engine_request import EngineRequests
from worker.figures import NodeFigures
from worker.gate import Gate
from worker.handover import hand_over
from worker.model_shelf import ModelShelf, NotLoaded
from worker.parcel import Damaged, Parcel
from worker.progress import ProgressWriter
from worker.render import Refused, Rendered, Renderer
from worker.settle import Settler
from worker.told import Teller
from worker.uploads import Uploader
from worker.verdict import Abandon, Finish, GiveBack, Retry, Verdict, attempt_error, failed, stopped

log = logging.getLogger(__name__)

Claim = Callable[[], Claimed | NotClaimed]

_STORE_PAUSE_S = 0.5
#: What a delivery is told whose job waits for the object store with its bytes on disk.
SET_ASIDE = "its outputs wait for the object store"


class Generate:
    """Everything that a job meets on its way. One thread a job calls `run` and waits in it."""

    def __init__(
        self,
        *,
        store: JobStore,
        engines: Mapping[str, DiffusionEngine],
        hinter: Hinter,
        inputs: InputLoader,
        uploader: Uploader,
        checkpoints: Checkpoints,
        attempts: Attempts,
        progress: ProgressWriter,
        gate: Gate,
        worker: str,
        lease_s: float,
        max_attempts: int,
        stall_s: float,
        draining: Callable[[], bool],
        on_broken: Callable[[str], None],
        tracing: Tracing = NO_TRACING,
        figures: NodeFigures | None = None,
        redact: Redactor | None = None,
        shelf: ModelShelf | None = None,
    ) -> None:
        self._tracing = tracing
        self._figures = figures or NodeFigures()
        self._store = store
        self._engines = engines
        self._hinter = hinter
        self._uploader = uploader
        self._checkpoints = checkpoints
        self._attempts = attempts
        self._gate = gate
        self._worker = worker
        self._lease_s = lease_s
        self._draining = draining
        self._on_broken = on_broken
        self._redact = redact or Redactor()
        self._teller = Teller(progress, engines, self._figures, attempts)
        requests = EngineRequests(inputs, checkpoints, self._teller.loading, tracing)
        self._renderer = Renderer(engines, requests, self._teller, store, tracing, stall_s, shelf)
        self._settler = Settler(
            store,
            hinter,
            uploader,
            checkpoints,
            max_attempts=max_attempts,
            lease_s=lease_s,
            draining=draining,
            tracing=tracing,
            attempts=attempts,
        )

    def run(self, model: str, hint: str) -> str:
        """What became of the turn, in a word for the log. Returns when the store knows the outcome, or once nobody has
        to wait for the job (`SET_ASIDE`): its lease is kept, and it settles by itself.

        The hint entitles to one job of its model, whichever is due; everything after the claim is about that one.

        The one exception is a drain without a store: the process must end, and the lease runs out.
        """
        return self._begin(lambda: self._store.take(model, hint, self._worker, self._lease_s), f"turn-{hint}").result()

    def tell(self) -> None:
        """Every now and then: what those that wait have to be told anew."""
        self._teller.tick()

    def bring_home(self, job_id: str) -> Future[str]:
        """The same for one job out of turn: its outputs are here, so that it needs no device."""
        return self._begin(lambda: self._store.claim(job_id, self._worker, self._lease_s), f"job-{job_id}")

    def _begin(self, claim: Claim, name: str) -> Future[str]:
        return hand_over(lambda let_go: self._run(claim, lambda: let_go(SET_ASIDE)), name)

    def _run(self, claim: Claim, let_go: Callable[[], None]) -> str:
        with self._gate.entering(self._draining) as entered:
            if entered is None:
                return "draining"  # still queued; its next message is sent when this one is overdue
            claimed = self._claimed(claim)
            if isinstance(claimed, NotClaimed):
                return claimed.reason
            self._wake()
            attempt = Attempt(claimed.job, claimed.attempt, solo=claimed.solo, tracing=self._tracing)
            attempt.when_set_aside(entered.leave)
            attempt.when_set_aside(let_go)
            with self._attempts.holding(attempt), attempt_span(self._tracing, claimed, self._worker) as span:
                attempt.trace = traceparent_here() or claimed.trace
                with attempt.lines():
                    if self._draining():  # begun since the claim was sent: the drain may have missed this attempt
                        attempt.stop(Stop.DRAIN)
                    verdict, outputs = self._attempt(attempt)
                    word = self._settler.settle(attempt, verdict, outputs)
                    self._wake()
                tell_end(span, verdict, word)
                return word

    def _claimed(self, claim: Claim) -> Claimed | NotClaimed:
        while not self._draining():
            try:
                return claim()
            except StoreUnavailable:
                time.sleep(_STORE_PAUSE_S)
        return NotClaimed("leased")

    def _wake(self) -> None:
        """Send messages for turns that were kept while their tenants were at their limits."""
        with contextlib.suppress(StoreUnavailable):  # the rescuer does the same
            self._hinter.publish(self._store.wake())

    def _attempt(self, attempt: Attempt) -> tuple[Verdict, tuple[Output, ...]]:
        """How the attempt ended, and the objects that it stored."""
        try:
            attempt.check()
            parcel = self._uploader.find(attempt)
            if parcel is not None:
                return self._send(attempt, parcel)
            if not attempt.solo:
                return self._render_and_send(attempt)
            with self._gate.alone(attempt.check) as no_longer:
                attempt.when_set_aside(lambda: self._in_company(attempt))  # first, as others come in after the second
                attempt.when_set_aside(no_longer)
                self._store.isolate(attempt.job.id, attempt.number)
                return self._render_and_send(attempt)
        except Exception as error:
            return self._verdict_on(attempt, error), ()
        finally:
            self._teller.forget(attempt)

    def _in_company(self, attempt: Attempt) -> None:
        """A job that waits for the object store with its outputs made is not what brings a worker down from now on."""
        with contextlib.suppress(StoreUnavailable):
            self._store.isolate(attempt.job.id, attempt.number, alone=False)

    def _verdict_on(self, attempt: Attempt, error: Exception) -> Verdict:
        match error:
            case Stopped(reason=reason):
                if reason is Stop.DRAIN and (checkpoint := attempt.what_is_done()) is not None:
                    self._checkpoints.keep(attempt, checkpoint)
                return stopped(reason)
            case Late():
                return failed(attempt, "deadline_exceeded", "its deadline passed before it was done")
            case InvalidRequest():
                return failed(attempt, error.error_type, str(error))
            case Refused():
                return failed(attempt, "invalid_request", str(error))
            case UploadFailed():  # never the request's fault
                trace = self._trace(error)
                return failed(attempt, "upload_failed", self._hide(error), retryable=True, traceback=trace)
            case StoreUnavailable() | Damaged():
                log.warning("job %s is given back: %s", attempt.job.id, error)
                return GiveBack()
            case NotLoaded():
                return self._not_loaded(attempt, str(error))
            case EngineClosed() | EngineDead():
                return self._engine_gone(attempt, str(error))
        log.error("job %s: unexpected error", attempt.job.id, exc_info=error)
        told = attempt_error(attempt, "internal", f"{type(error).__name__}: {self._hide(error)}", retryable=True)
        return Retry(told, self._trace(error))

    def _render_and_send(self, attempt: Attempt) -> tuple[Verdict, tuple[Output, ...]]:
        packed = self._pack(attempt)
        return self._send(attempt, packed) if isinstance(packed, Parcel) else (packed, ())

    def _pack(self, attempt: Attempt) -> Parcel | Verdict:
        """The pixels end here: what waits for the object store is files."""
        end = self._renderer.render(attempt)
        match end:
            case Rendered():
                self._teller.uploading(attempt)
                began = time.monotonic()
                parcel = self._uploader.pack(attempt, end.media, end.warnings)
                attempt.times.upload_ms = (time.monotonic() - began) * 1000
                return parcel
            case Aborted():
                attempt.check()
                return GiveBack()  # the engine closed under it
            case Failed(message=message, retryable=True):
                return self._engine_gone(attempt, message)
            case Failed(error_type=kind, message=message, traceback=trace):
                trace = kept_traceback(trace or "", self._redact)
                return failed(attempt, kind, self._hide(message), traceback=trace)

    def _send(self, attempt: Attempt, parcel: Parcel) -> tuple[Verdict, tuple[Output, ...]]:
        began = time.monotonic()
        self._teller.uploading(attempt)
        try:
            outputs = self._uploader.store(attempt, parcel)
        finally:
            attempt.times.upload_ms = (attempt.times.upload_ms or 0.0) + (time.monotonic() - began) * 1000
        if not attempt.is_set_aside:  # an outage tells nothing of how long uploads take
            self._figures.succeeded(attempt.job.request.model or "", attempt.metrics())
        return Finish(Outcome(JobStatus.SUCCEEDED, outputs=outputs, warnings=parcel.manifest.warnings)), outputs

    def _engine_gone(self, attempt: Attempt, why: str) -> Verdict:
        """The engine ended under the job. If its batch was running then, it may be what broke the device."""
        model = attempt.job.request.model
        assert model is not None
        engine = self._engines.get(model)
        if engine is None or engine.stats().state in ("closing", "closed"):  # by this process, which leaves
            return GiveBack()
        if self._draining() and not attempt.started:
            return GiveBack()
        self._on_broken(f"the engine of model {model} is gone: {why}")
        return Abandon() if attempt.started else GiveBack()

    def _not_loaded(self, attempt: Attempt, why: str) -> Verdict:
        """Here; the weights may be better elsewhere, or later. In the end an operator has to look."""
        if self._draining():
            return GiveBack()
        return Retry(attempt_error(attempt, "model_error", self._hide(why), retryable=True))

    def _hide(self, text: object) -> str:
        return self._redact(str(text))

    def _trace(self, error: Exception) -> str:
        return kept_traceback("".join(traceback.format_exception(error)), self._redact)

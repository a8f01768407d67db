"""A job's life in this process, from its turn to its outcome, as one plain story: claim, render, store, settle."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
import traceback
from collections.abc import Callable, Iterator, Mapping

from PIL import Image

from engine import (
    Aborted,
    Completed,
    DiffusionEngine,
    DiffusionRequest,
    EngineClosed,
    EngineDead,
    Event,
    Failed,
    OutputStream,
    Preview,
    Progress,
    SamplingParams,
    Started,
)
from tasks.artifacts import UploadFailed
from tasks.errors import InvalidRequest, StoreUnavailable
from tasks.hints import Hinter
from tasks.inputs import InputLoader, LoadedImage
from tasks.job import JobMetrics, JobStatus, Output
from tasks.job import Progress as JobProgress
from tasks.job_codec import work_of
from tasks.redaction import Redactor, kept_traceback
from tasks.store import Claimed, Hint, JobStore, NotClaimed, Outcome, Written
from tasks.trace_context import traceparent_here
from tasks.tracing import NO_TRACING, Tracing
from worker.account import batching, job_metrics
from worker.attempt import Attempt, Attempts, Late, Stop, Stopped
from worker.attempt_span import attempt_span, tell_end
from worker.checkpoints import Checkpoints
from worker.figures import NodeFigures
from worker.gate import Gate
from worker.previews import preview_data
from worker.progress import ProgressWriter, progress_of
from worker.stage_spans import StageSpans
from worker.uploads import Uploader
from worker.verdict import (
    Abandon,
    Finish,
    GiveBack,
    LetGo,
    Retry,
    Verdict,
    accounted,
    attempt_error,
    failed,
    stopped,
)

log = logging.getLogger(__name__)

_STORE_PAUSE_S = 0.5
#: How often a thread that waits for its events looks whether it should still wait.
_GLANCE_S = 1.0
_INPUT_PAUSE_S, _INPUT_PATIENCE_S = 2.0, 900.0
#: At a drain: how long a step may take until its request can leave the engine.
_EXPORT_PATIENCE_S = 20.0


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
    ) -> None:
        self._tracing = tracing
        self._figures = figures or NodeFigures()
        self._store = store
        self._engines = engines
        self._hinter = hinter
        self._inputs = inputs
        self._uploader = uploader
        self._checkpoints = checkpoints
        self._attempts = attempts
        self._progress = progress
        self._gate = gate
        self._worker = worker
        self._lease_s = lease_s
        self._max_attempts = max_attempts
        self._stall_s = stall_s
        self._draining = draining
        self._on_broken = on_broken
        self._redact = redact or Redactor()

    def run(self, model: str, hint: str) -> str:
        """What became of the turn, in a word for the log. Returns when the store knows the outcome.

        The hint entitles to one job of its model, whichever is due; everything after the claim is about that one.

        The one exception is a drain without a store: the process must end, and the lease runs out.
        """
        with self._gate.entering(self._draining) as entered:
            if not entered:
                return "draining"  # still queued; its next message is sent when this one is overdue
            claimed = self._take(model, hint)
            if isinstance(claimed, NotClaimed):
                return claimed.reason
            self._wake()
            attempt = Attempt(claimed.job, claimed.attempt, solo=claimed.solo, tracing=self._tracing)
            with self._attempts.holding(attempt), attempt_span(self._tracing, claimed, self._worker) as span:
                attempt.trace = traceparent_here() or claimed.trace
                with attempt.lines():
                    if self._draining():  # begun since the claim was sent: the drain may have missed this attempt
                        attempt.stop(Stop.DRAIN)
                    verdict, outputs = self._attempt(attempt)
                    word = self._settle(attempt, verdict, outputs)
                    self._wake()
                tell_end(span, verdict, word)
                return word

    def _take(self, model: str, hint: str) -> Claimed | NotClaimed:
        while not self._draining():
            try:
                return self._store.take(model, hint, self._worker, self._lease_s)
            except StoreUnavailable:
                time.sleep(_STORE_PAUSE_S)
        return NotClaimed("leased")

    def _wake(self) -> None:
        """Send messages for turns that were kept while their tenants were at their limits."""
        with contextlib.suppress(StoreUnavailable):  # the rescuer does the same
            self._hinter.publish(self._store.wake())

    # -- rendering ----------------------------------------------------------------------------------------------

    def _attempt(self, attempt: Attempt) -> tuple[Verdict, tuple[Output, ...]]:
        """How the attempt ended, and the objects that it stored."""
        try:
            if not attempt.solo:
                return self._render_and_store(attempt)
            with self._gate.alone(attempt.check):
                self._store.isolate(attempt.job.id, attempt.number)
                return self._render_and_store(attempt)
        except Stopped as end:
            if end.reason is Stop.DRAIN and (checkpoint := attempt.what_is_done()) is not None:
                self._checkpoints.keep(attempt, checkpoint)
            return stopped(end.reason), ()
        except Late:
            return failed(attempt, "deadline_exceeded", "its deadline passed before it was done"), ()
        except InvalidRequest as error:
            return failed(attempt, error.error_type, str(error)), ()
        except UploadFailed as error:
            # Never the request's fault.
            return failed(attempt, "upload_failed", self._hide(error), retryable=True, traceback=self._trace(error)), ()
        except StoreUnavailable as error:
            log.warning("job %s is given back: %s", attempt.job.id, error)
            return GiveBack(), ()
        except (EngineClosed, EngineDead) as error:
            return self._engine_gone(attempt, str(error)), ()
        except Exception as error:
            log.exception("job %s: unexpected error", attempt.job.id)
            told = attempt_error(attempt, "internal", f"{type(error).__name__}: {self._hide(error)}", retryable=True)
            return Retry(told, self._trace(error)), ()
        finally:
            self._progress.forget(attempt.key)

    def _render_and_store(self, attempt: Attempt) -> tuple[Verdict, tuple[Output, ...]]:
        attempt.check()
        attempt.check_deadline()
        began = time.monotonic()
        try:
            request, warnings = self._engine_request(attempt)
        except InvalidRequest:
            raise
        except ValueError as error:  # the engine's own checks of what it is given
            return failed(attempt, "invalid_request", str(error)), ()
        attempt.times.load_ms = (time.monotonic() - began) * 1000
        end = self._denoise(attempt, request)
        match end:
            case Aborted():
                attempt.check()
                return GiveBack(), ()  # the engine closed under it
            case Failed(message=message, retryable=True):
                return self._engine_gone(attempt, message), ()
            case Failed(error_type=kind, message=message, traceback=trace):
                trace = kept_traceback(trace or "", self._redact)
                return failed(attempt, kind, self._hide(message), traceback=trace), ()
        attempt.seal = functools.partial(self._engine(attempt).sealed, request, end.media)
        began = time.monotonic()
        self._note(attempt, "uploading", *self._steps(attempt))
        try:
            outputs = self._uploader.store(attempt, end.media)
        finally:
            attempt.times.upload_ms = (time.monotonic() - began) * 1000
        warnings = (*warnings, *end.warnings, *_unmet(attempt))
        outcome = Outcome(JobStatus.SUCCEEDED, outputs=outputs, warnings=warnings)
        self._figures.succeeded(attempt.job.request.model or "", _metrics(attempt))
        return Finish(outcome), outputs

    def _hide(self, text: object) -> str:
        return self._redact(str(text))

    def _trace(self, error: Exception) -> str:
        return kept_traceback("".join(traceback.format_exception(error)), self._redact)

    def _engine_gone(self, attempt: Attempt, why: str) -> Verdict:
        """The engine ended under the job. If its batch was running then, it may be what broke the device."""
        model = attempt.job.request.model
        assert model is not None
        if self._engines[model].stats().state in ("closing", "closed"):  # by this process, which leaves
            return GiveBack()
        if self._draining() and not attempt.started:
            return GiveBack()
        self._on_broken(f"the engine of model {model} is gone: {why}")
        return Abandon() if attempt.started else GiveBack()

    def _engine_request(self, attempt: Attempt) -> tuple[DiffusionRequest, tuple[str, ...]]:
        wish = attempt.job.request
        assert wish.height and wish.width and wish.num_inference_steps and wish.seed is not None
        assert wish.guidance_scale is not None
        images: dict[str, Image.Image] = {}
        warnings: list[str] = []
        for field, uri in (("image", wish.image), ("mask_image", wish.mask_image)):
            if uri is not None:
                with self._tracing.span("fetch inputs", {"safelight.field": field}, kind="client"):
                    loaded = self._load_image(attempt, uri, field)
                images[field] = loaded.image
                warnings += loaded.warnings
        resume = self._checkpoints.find(attempt)
        deadline_s = attempt.check_deadline()
        params = SamplingParams(
            height=wish.height,
            width=wish.width,
            num_inference_steps=wish.num_inference_steps,
            guidance_scale=wish.guidance_scale,
            seed=wish.seed,
            num_outputs=wish.num_outputs,
            negative_prompt=wish.negative_prompt,
            strength=wish.strength,
            noise_scheduler=wish.noise_scheduler,
            num_frames=wish.num_frames,
            fps=wish.fps,
            duration_s=wish.duration_s,
            exact=wish.exact,
            preview_every=wish.preview_every,
            loras=tuple((lora.name, lora.scale) for lora in wish.loras),
        )
        request = DiffusionRequest(
            request_id=attempt.request_id,
            prompt=wish.prompt,
            params=params,
            priority=wish.priority,
            deadline_s=deadline_s,
            solo=attempt.solo,
            resume=resume,
            **images,
        )
        return request, tuple(warnings)

    def _load_image(self, attempt: Attempt, uri: str, field: str) -> LoadedImage:
        """Wait out an object store that is away, with patience; whatever else is wrong is the request's own fault."""
        wish = attempt.job.request
        assert wish.height and wish.width
        self._note(attempt, "loading", 0, wish.num_inference_steps or 0)
        give_up_at = time.monotonic() + _INPUT_PATIENCE_S
        while True:
            attempt.check()
            attempt.check_deadline()
            try:
                return self._inputs.load_image(uri, field, size=(wish.width, wish.height))
            except StoreUnavailable as error:
                if time.monotonic() > give_up_at:
                    raise TimeoutError(f"{field} could not be read in {_INPUT_PATIENCE_S:.0f} s: {error}") from error
                log.warning("job %s: %s cannot be read now: %s", attempt.job.id, field, error)
            attempt.sleep(_INPUT_PAUSE_S)

    def _denoise(self, attempt: Attempt, request: DiffusionRequest) -> Completed | Aborted | Failed:
        attempt.check()
        engine = self._engine(attempt)
        stream = engine.submit(request)
        attempt.bind(lambda: self._leave(attempt, engine, request))
        try:
            return self._outcome(attempt, stream)
        except Stopped:
            engine.abort(request.request_id)  # whoever stopped it may not have got so far yet
            raise

    def _outcome(self, attempt: Attempt, stream: OutputStream) -> Completed | Aborted | Failed:
        engine, spans = self._engine(attempt), StageSpans(self._tracing)
        for event in self._signs_of_life(attempt, stream):
            spans.note(event)
            match event:
                case Started():
                    attempt.started = True
                case Progress(stage=stage, step=step, num_steps=num_steps):
                    self._note(attempt, stage, step, num_steps)
                case Preview(step=step, image=image):
                    self._preview(attempt, step, image)
                case Completed() | Aborted() | Failed():
                    attempt.times.engine, attempt.times.mode = event.metrics, engine.capabilities.mode
                    return event
        raise EngineClosed("the stream ended without an outcome")

    def _engine(self, attempt: Attempt) -> DiffusionEngine:
        assert attempt.job.request.model is not None
        return self._engines[attempt.job.request.model]

    def _leave(self, attempt: Attempt, engine: DiffusionEngine, request: DiffusionRequest) -> None:
        """At a stop: out of the engine, at a drain with all that is done."""
        if attempt.reason is Stop.DRAIN and attempt.started and attempt.seal is None:
            with attempt.leaving, attempt.lines():
                try:
                    attempt.checkpoint = engine.export(request.request_id, _EXPORT_PATIENCE_S)
                except (EngineClosed, TimeoutError, TypeError) as error:
                    log.warning("job %s: no checkpoint: %s", attempt.job.id, error)
        engine.abort(request.request_id)

    def _signs_of_life(self, attempt: Attempt, stream: OutputStream) -> Iterator[Event]:
        """The stream's events. Raises `EngineDead` if a running batch is silent for too long and the device does no
        other work either (a row may have to stand aside), `Stopped` for one that was stopped before it ran, even if the
        device no longer answers."""
        engine = self._engine(attempt)
        heard_at, forwards = time.monotonic(), engine.stats().batches
        while True:
            try:
                event = stream.get(_GLANCE_S)
            except TimeoutError:
                if not attempt.started:
                    attempt.check()
                elif (now_at := engine.stats().batches) != forwards:
                    heard_at, forwards = time.monotonic(), now_at
                elif time.monotonic() - heard_at > self._stall_s:
                    raise EngineDead(f"no sign of life from the device for {self._stall_s:g} s") from None
                continue
            if event is None:
                return
            heard_at = time.monotonic()
            yield event

    def _preview(self, attempt: Attempt, step: int, image: Image.Image) -> None:
        attempt.num_previews += 1
        with contextlib.suppress(StoreUnavailable):  # the next one will do
            self._store.preview(*attempt.key, preview_data(step, image))

    def _steps(self, attempt: Attempt) -> tuple[int, int]:
        num_steps = attempt.job.request.num_inference_steps or 0
        return num_steps, num_steps

    def _note(self, attempt: Attempt, stage: str, step: int, num_steps: int) -> None:
        progress = progress_of(stage, step, num_steps)  # type: ignore[arg-type]
        self._progress.note(attempt.key, progress.model_copy(update={"eta_s": self._eta_s(attempt, progress)}))

    def _eta_s(self, attempt: Attempt, progress: JobProgress) -> float | None:
        """By this attempt's own steps; before it has made two, by those that the engine measured lately."""
        rest_s = self._figures.rest_s(attempt.job.request.model or "")
        if progress.num_steps:
            attempt.work_left = work_of(attempt.job.request) * (1 - progress.step / progress.num_steps)
        if progress.stage in ("decoding", "uploading"):
            return round(rest_s, 3) if rest_s else None
        if progress.stage != "denoising":
            return None
        attempt.pace.note(progress.step, time.monotonic())
        step_s = attempt.pace.step_s
        if step_s is None:
            step_ms = self._engine(attempt).stats().step_ms
            step_s = None if step_ms is None else step_ms / 1000
        return None if step_s is None else round(step_s * (progress.num_steps - progress.step) + rest_s, 3)

    # -- settling -----------------------------------------------------------------------------------------------

    def _settle(self, attempt: Attempt, verdict: Verdict, outputs: tuple[Output, ...]) -> str:
        """Write the verdict, however long the store is away; a stop that came before overrules it.

        One that comes after a try does not: the try may have arrived, and then the record names the outputs. Only the
        store's own answer tells whether they may be deleted.
        """
        away_since: float | None = None
        while True:
            if away_since is None:
                verdict = accounted(_overruled(attempt, verdict), _metrics(attempt), batching(attempt.times))
            try:
                with self._tracing.span("finish", {"safelight.verdict": type(verdict).__name__}, kind="client"):
                    word, keeps_outputs = self._write(attempt, verdict)
            except StoreUnavailable:
                away_since = away_since or time.monotonic()
                if self._draining() and time.monotonic() - away_since > self._lease_s:
                    log.warning("job %s attempt %d: left to its lease, the store is away", *attempt.key)
                    return "unsettled"
                time.sleep(_STORE_PAUSE_S)
                continue
            if not keeps_outputs:
                self._uploader.discard(outputs)
            if isinstance(verdict, Finish):
                self._checkpoints.forget(attempt)
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
                    job_id, number, error, self._max_attempts, _metrics(attempt), traceback=trace
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

    def _hint(self, attempt: Attempt) -> None:
        request = attempt.job.request
        assert request.model is not None
        self._hinter.publish([Hint(attempt.job.id, request.model, request.priority)])


def _unmet(attempt: Attempt) -> tuple[str, ...]:
    """Wishes that the model could not grant and that are no reason to fail."""
    every = attempt.job.request.preview_every
    if every and not attempt.num_previews and every < (attempt.job.request.num_inference_steps or 0):
        return ("no previews: a model has them for pictures, from its first finished one on",)
    return ()


def _overruled(attempt: Attempt, verdict: Verdict) -> Verdict:
    return verdict if attempt.reason in (None, Stop.DRAIN) else stopped(attempt.reason)


def _metrics(attempt: Attempt) -> JobMetrics:
    return job_metrics(attempt.job, attempt.claimed_at, attempt.times)

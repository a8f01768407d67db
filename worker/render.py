"""From a claimed job to its pixels: a request in the engine's inbox, and the stream of what becomes of it."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

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
    Media,
    OutputStream,
    Preview,
    Progress,
    Started,
)
from tasks.errors import InvalidRequest, StoreUnavailable
from tasks.store import JobStore
from tasks.tracing import Tracing
from worker.attempt import Attempt, Stop, Stopped
from worker.engine_request import EngineRequests
from worker.model_shelf import ModelShelf
from worker.previews import preview_data
from worker.stage_spans import StageSpans
from worker.told import Teller

log = logging.getLogger(__name__)

#: How often a thread that waits for its events looks whether it should still wait.
_GLANCE_S = 1.0
#: At a drain: how long a step may take until its request can leave the engine.
_EXPORT_PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Rendered:
    media: tuple[Media, ...]
    warnings: tuple[str, ...]


class Refused(Exception):
    """The engine does not take the request."""


class Renderer:
    def __init__(
        self,
        engines: Mapping[str, DiffusionEngine],
        requests: EngineRequests,
        teller: Teller,
        store: JobStore,
        tracing: Tracing,
        stall_s: float,
        shelf: ModelShelf | None = None,
    ) -> None:
        """Without a `shelf` all engines stay."""
        self._engines = engines
        self._shelf = shelf
        self._requests = requests
        self._teller = teller
        self._store = store
        self._tracing = tracing
        self._stall_s = stall_s

    def render(self, attempt: Attempt) -> Rendered | Aborted | Failed:
        """Raises `Stopped`, `Late`, `InvalidRequest`, `Refused`, `NotLoaded`, `EngineClosed`, `EngineDead`."""
        attempt.check()
        attempt.check_deadline()
        began = time.monotonic()
        try:
            request, warnings = self._requests.make(attempt)
        except InvalidRequest:
            raise
        except ValueError as error:
            raise Refused(str(error)) from error
        attempt.times.load_ms = (time.monotonic() - began) * 1000
        with self._engine(attempt) as engine:
            end = self._denoise(attempt, engine, request)
        if not isinstance(end, Completed):
            return end
        attempt.seal = functools.partial(engine.sealed, request, end.media)
        return Rendered(end.media, (*warnings, *end.warnings, *_unmet(attempt)))

    def _engine(self, attempt: Attempt) -> AbstractContextManager[DiffusionEngine]:
        """Which stays at least until the block ends."""
        model = attempt.job.request.model
        assert model is not None
        if self._shelf is None:
            return contextlib.nullcontext(self._engines[model])

        def check() -> None:
            attempt.check()
            attempt.check_deadline()

        return self._shelf.using(model, check, lambda: self._teller.loading_model(attempt))

    def _denoise(
        self, attempt: Attempt, engine: DiffusionEngine, request: DiffusionRequest
    ) -> Completed | Aborted | Failed:
        attempt.check()
        stream = engine.submit(request)
        self._teller.waiting(attempt)
        self._teller.follow(attempt, stream)
        attempt.bind(lambda: self._leave(attempt, engine, request))
        try:
            return self._outcome(attempt, engine, stream)
        except Stopped:
            engine.abort(request.request_id)  # whoever stopped it may not have got so far yet
            raise

    def _outcome(self, attempt: Attempt, engine: DiffusionEngine, stream: OutputStream) -> Completed | Aborted | Failed:
        spans = StageSpans(self._tracing)
        for event in self._signs_of_life(attempt, engine, stream):
            spans.note(event, stream.latest)
            match event:
                case Started():
                    attempt.started = True
                case Progress(stage=stage, step=step, num_steps=num_steps):
                    self._teller.note(attempt, stage, step, num_steps)
                case Preview(step=step, image=image):
                    self._preview(attempt, step, image)
                case Completed() | Aborted() | Failed():
                    attempt.times.engine, attempt.times.mode = event.metrics, engine.capabilities.mode
                    return event
        raise EngineClosed("the stream ended without an outcome")

    def _leave(self, attempt: Attempt, engine: DiffusionEngine, request: DiffusionRequest) -> None:
        """At a stop: out of the engine, at a drain with all that is done.

        Also of one that we have not heard to have begun: the engine knows first.
        """
        if attempt.reason is Stop.DRAIN and attempt.seal is None:
            with attempt.leaving, attempt.lines():
                try:
                    attempt.checkpoint = engine.export(request.request_id, _EXPORT_PATIENCE_S)
                except (EngineClosed, TimeoutError, TypeError) as error:
                    log.warning("job %s: no checkpoint: %s", attempt.job.id, error)
        engine.abort(request.request_id)

    def _signs_of_life(self, attempt: Attempt, engine: DiffusionEngine, stream: OutputStream) -> Iterator[Event]:
        """The stream's events. Raises `EngineDead` if a running batch is silent for too long and the device does no
        other work either (a row may have to stand aside), `Stopped` for one that was stopped before it ran, even if the
        device no longer answers."""
        heard_at, sign = time.monotonic(), (engine.stats().batches, stream.latest)
        while True:
            try:
                event = stream.get(_GLANCE_S)
            except TimeoutError:
                if not attempt.started:
                    attempt.check()
                elif (now_at := (engine.stats().batches, stream.latest)) != sign:
                    heard_at, sign = time.monotonic(), now_at
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


def _unmet(attempt: Attempt) -> tuple[str, ...]:
    """Wishes that the model could not grant and that are no reason to fail."""
    every = attempt.job.request.preview_every
    if every and not attempt.num_previews and every < (attempt.job.request.num_inference_steps or 0):
        return ("no previews: a model has them for pictures, from its first finished one on",)
    return ()

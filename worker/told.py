"""What a job's record is told while its attempt runs: stage, steps, and when it will be done."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from engine import DiffusionEngine, OutputStream
from engine import Progress as Steps
from tasks.job import Progress, Stage
from tasks.job_codec import work_of
from worker.attempt import Attempt, Attempts
from worker.figures import NodeFigures
from worker.outlook import Outlook
from worker.progress import ProgressWriter, progress_of

#: What a job waits for that has its inputs.
WAITS_FOR_PLACE = "waits for a place on the device"
#: A told estimate that is off by more is told anew: seconds, and a share of what is left.
_OFF_S, _OFF_PART = 1.0, 0.2


@dataclass(frozen=True, slots=True)
class _Told:
    """Of an attempt that waits: the estimate, None if there was none, and when it was told."""

    eta_s: float | None
    at_s: float

    def is_off(self, eta_s: float | None, now_s: float) -> bool:
        if self.eta_s is None or eta_s is None:
            return self.eta_s is not eta_s
        return abs(self.eta_s - (now_s - self.at_s) - eta_s) > max(_OFF_S, _OFF_PART * eta_s)


class Teller:
    def __init__(
        self,
        progress: ProgressWriter,
        engines: Mapping[str, DiffusionEngine],
        figures: NodeFigures,
        attempts: Attempts,
    ) -> None:
        self._progress = progress
        self._figures = figures
        self._attempts = attempts
        self._outlook = Outlook(attempts, engines, figures)
        self._waiting: dict[tuple[str, int], _Told] = {}
        #: What is in the engine: its stream, and the progress that was told last.
        self._followed: dict[tuple[str, int], tuple[OutputStream, Steps | None]] = {}
        self._lock = threading.Lock()

    def note(self, attempt: Attempt, stage: Stage, step: int, num_steps: int) -> None:
        self._waiting.pop(attempt.key, None)
        progress = progress_of(stage, step, num_steps)
        self._progress.note(attempt.key, progress.model_copy(update={"eta_s": self._eta_s(attempt, progress)}))

    def loading(self, attempt: Attempt) -> None:
        """Its inputs are being fetched."""
        self.note(attempt, "loading", 0, attempt.job.request.num_inference_steps or 0)

    def waiting(self, attempt: Attempt) -> None:
        """The engine has it, and no device has begun with it."""
        eta_s = self._outlook.eta_s(attempt)
        self._waiting[attempt.key] = _Told(eta_s, time.monotonic())
        progress = progress_of("loading", 0, attempt.job.request.num_inference_steps or 0)
        told = {"eta_s": _rounded(eta_s), "detail": WAITS_FOR_PLACE}
        self._progress.note(attempt.key, progress.model_copy(update=told))

    def follow(self, attempt: Attempt, stream: OutputStream) -> None:
        """Its steps are told at ticks: nobody, its own thread neither, is woken by each."""
        stream.thin_out()
        self._followed[attempt.key] = stream, None

    def tick(self) -> None:
        """Tell how far those have come that are in the engine, and the estimates anew that have turned out wrong: of
        those that wait, as theirs hang on others."""
        for attempt in self._attempts.live():
            with self._lock:
                self._look_at(attempt)
            told = self._waiting.get(attempt.key)
            if told is not None and told.is_off(self._outlook.eta_s(attempt), time.monotonic()):
                self.waiting(attempt)

    def _look_at(self, attempt: Attempt) -> None:
        stream, known = self._followed.get(attempt.key, (None, None))
        if stream is not None and (latest := stream.latest) is not None and latest != known:
            self._followed[attempt.key] = stream, latest
            self.note(attempt, latest.stage, latest.step, latest.num_steps)

    def loading_model(self, attempt: Attempt) -> None:
        """It waits for its model, which is being loaded."""
        request = attempt.job.request
        progress = progress_of("loading", 0, request.num_inference_steps or 0)
        self._progress.note(attempt.key, progress.model_copy(update={"detail": f"loading model {request.model}"}))

    def uploading(self, attempt: Attempt) -> None:
        with self._lock:
            self._followed.pop(attempt.key, None)
        num_steps = attempt.job.request.num_inference_steps or 0
        self.note(attempt, "uploading", num_steps, num_steps)

    def forget(self, attempt: Attempt) -> None:
        self._waiting.pop(attempt.key, None)
        with self._lock:
            self._followed.pop(attempt.key, None)
        self._progress.forget(attempt.key)

    def _eta_s(self, attempt: Attempt, progress: Progress) -> float | None:
        if progress.num_steps:
            attempt.work_left = work_of(attempt.job.request) * (1 - progress.step / progress.num_steps)
        if progress.stage in ("decoding", "uploading"):
            rest_s = self._figures.rest_s(attempt.job.request.model or "")
            return _rounded(rest_s) if rest_s else None
        return _rounded(self._outlook.eta_s(attempt))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)

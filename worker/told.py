"""What a job's record is told while its attempt runs: stage, steps, and when it will be done."""

from __future__ import annotations

import time
from collections.abc import Mapping

from engine import DiffusionEngine
from tasks.job import Progress, Stage
from tasks.job_codec import work_of
from worker.attempt import Attempt
from worker.figures import NodeFigures
from worker.progress import ProgressWriter, progress_of


class Teller:
    def __init__(self, progress: ProgressWriter, engines: Mapping[str, DiffusionEngine], figures: NodeFigures) -> None:
        self._progress = progress
        self._engines = engines
        self._figures = figures

    def note(self, attempt: Attempt, stage: Stage, step: int, num_steps: int) -> None:
        progress = progress_of(stage, step, num_steps)
        self._progress.note(attempt.key, progress.model_copy(update={"eta_s": self._eta_s(attempt, progress)}))

    def loading(self, attempt: Attempt) -> None:
        self.note(attempt, "loading", 0, attempt.job.request.num_inference_steps or 0)

    def loading_model(self, attempt: Attempt) -> None:
        """It waits for its model, which is being loaded."""
        request = attempt.job.request
        progress = progress_of("loading", 0, request.num_inference_steps or 0)
        self._progress.note(attempt.key, progress.model_copy(update={"detail": f"loading model {request.model}"}))

    def uploading(self, attempt: Attempt) -> None:
        num_steps = attempt.job.request.num_inference_steps or 0
        self.note(attempt, "uploading", num_steps, num_steps)

    def forget(self, attempt: Attempt) -> None:
        self._progress.forget(attempt.key)

    def _eta_s(self, attempt: Attempt, progress: Progress) -> float | None:
        """By this attempt's own steps; before it has made two, by those that the engine measured lately."""
        model = attempt.job.request.model or ""
        rest_s = self._figures.rest_s(model)
        if progress.num_steps:
            attempt.work_left = work_of(attempt.job.request) * (1 - progress.step / progress.num_steps)
        if progress.stage in ("decoding", "uploading"):
            return round(rest_s, 3) if rest_s else None
        if progress.stage != "denoising":
            return None
        attempt.pace.note(progress.step, time.monotonic())
        step_s = attempt.pace.step_s
        if step_s is None:
            engine = self._engines.get(model)
            step_ms = None if engine is None else engine.stats().step_ms
            step_s = None if step_ms is None else step_ms / 1000
        return None if step_s is None else round(step_s * (progress.num_steps - progress.step) + rest_s, 3)

"""Any diffusers pipeline of pictures, videos or sound as it is: one call for a batch of compatible rows.

Whatever may differ between rows goes in as a list: prompts, negative prompts, images, and one generator a row. The
generators are CPU generators whatever the device, so that a seed means the same noise everywhere.
"""

import functools
import gc
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import diffusers
import numpy as np
import torch
from PIL import Image

from ..adapter import Capabilities, Output, RowCall, RowOutcome, StepHook
from ..batch import Batch
from ..batch_key import BatchKey, Task
from ..checkpoint import RowState
from ..config import EngineConfig
from ..errors import DeviceLost, InvalidRequest, ModelError, OutOfMemory
from ..pending import Pending, settled
from ..request import DiffusionRequest, Row
from .copy_lane import CopyLane
from .landing import Landing
from .loading import LoadedPipeline, load_pipeline
from .lockstep.company import Company
from .lora_shelf import LoraShelf
from .noise_schedulers import NoiseSchedulers
from .out_of_memory import is_out_of_memory
from .outputs import Floats, media, raw_rows
from .pipeline_call import PipelineCall
from .previewer import Previewer
from .profiler import Profiler
from .prompts import PromptReader
from .sizes import default_size, size_multiple
from .step_safety import denoisers_of
from .task_pipeline import TaskPipeline, pipelines_by_task
from .weights import bytes_on

#: a picture of fewer steps is a grey cloud, from which nothing is learned about colours
TEACHING_STEPS = 4

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rendered:
    """What one pipeline call gave: an outcome a row, and the latents `[B, …]` after the last step."""

    outcomes: Sequence[RowOutcome | Pending]
    latents: torch.Tensor | None


class WholePipeline:
    """A PipelineAdapter over an unmodified pipeline and its image-to-image and inpainting siblings."""

    def __init__(self, config: EngineConfig, *, defers: bool = False) -> None:
        """`defers`: outcomes are Pending, for another thread to finish; otherwise whoever calls waits for them."""
        self._config = config
        self._defers = defers
        self._profiler = Profiler()
        self._modes = ExitStack()
        self._previewer = Previewer()
        self._tasks: Mapping[Task, TaskPipeline] = {}
        self._loaded: Any = None
        self._company: Company | None = None

    def load(self) -> Capabilities:
        self._company = None if self._config.parallel is None else Company(self._config)
        loaded = load_pipeline(self._config)
        if self._company is not None:
            self._company.lead(denoisers_of(loaded.pipeline), loaded.device)
        self._loaded = pipeline = loaded.pipeline
        self._device = loaded.device
        self._lane = CopyLane(loaded.device)
        self._loras = LoraShelf(pipeline, self._config)
        self._tasks = pipelines_by_task(pipeline)
        self._noise_schedulers = NoiseSchedulers(pipeline.scheduler)
        own = TaskPipeline(pipeline)
        self._prompts = PromptReader(pipeline, own.default("max_sequence_length"))
        self._size_multiple = 1 if own.modality == "audio" else size_multiple(pipeline)
        # Entered once: pipelines switch gradients back on when they return.
        self._modes.enter_context(torch.inference_mode())
        if self._config.compile and self._config.mode == "request":
            self._compile()
        return self._capabilities(loaded, own)

    def batch_key(self, request: DiffusionRequest) -> BatchKey:
        params = request.params
        for name, value in (("height", params.height), ("width", params.width)):
            if value % self._size_multiple:
                raise InvalidRequest(f"{name} {value} must be a multiple of {self._size_multiple}")
        task = _task(request)
        pipeline = self._pipeline(task)
        pipeline.planned_steps(params)
        return BatchKey(
            task=task,
            height=0 if pipeline.modality == "audio" else params.height,
            width=0 if pipeline.modality == "audio" else params.width,
            num_inference_steps=params.num_inference_steps,
            guidance_scale=params.guidance_scale,
            has_negative=pipeline.reads_negative(params),
            strength=pipeline.strength(params),
            noise_scheduler=self._noise_schedulers.resolve(params.noise_scheduler),
            num_frames=pipeline.num_frames(params),
            fps=pipeline.fps(params),
            duration_s=pipeline.duration_s(params),
            image_size=pipeline.image_size(request),
            loras=self._loras.resolve(params.loras),
            extra=pipeline.company(request),
        )

    def prepare(self, request: DiffusionRequest) -> Future[object] | None:
        return self._loras.prepare(request.params.loras)

    def run(self, batch: Batch, on_step: StepHook) -> Sequence[RowOutcome | Pending]:
        # Pipelines that draw beside their generators become reproducible too, as long as they run alone.
        torch.manual_seed(batch.rows[0].seed)
        return self._within_memory(len(batch.rows), lambda: self._render(batch, on_step).outcomes)

    def open(self, batch: Batch, on_step: StepHook, *, alone: bool, resume: RowState | None = None) -> RowCall:
        raise NotImplementedError("served in request mode")

    def advance(self, calls: Sequence[RowCall]) -> None:
        raise NotImplementedError("served in request mode")

    def methods(self) -> Mapping[str, Callable[..., object]]:
        return {
            "noise_schedulers": lambda: self._noise_schedulers.names(),
            "profile_start": self._profiler.start,
            "profile_stop": self._profiler.stop,
            "release_memory": self._release_memory,
        }

    def probe(self) -> None:
        try:
            torch.ones(1, device=self._device).add_(1).cpu()
        except RuntimeError as error:
            raise DeviceLost(f"{self._device} is unusable: {error}") from error
        if self._company is not None:
            self._company.require_whole()

    def close(self) -> None:
        """Whoever still holds this object then holds no weights."""
        self._tasks = {}
        if "_loras" in vars(self):
            self._loras.close()
        for name in ("_loras", "_prompts", "_noise_schedulers"):
            vars(self).pop(name, None)
        self._loaded = None
        self._modes.close()
        if self._company is not None:
            self._company.close()
            self._company = None
        self._release_memory()

    def _compile(self) -> None:
        """The first call of each size then takes minutes."""
        for module in denoisers_of(self._loaded).values():
            module.compile()

    def _capabilities(self, loaded: LoadedPipeline, own: TaskPipeline) -> Capabilities:
        noise_config = loaded.pipeline.scheduler.config
        rows_have_own_noise = own.accepts("generator") and not noise_config.get("stochastic_sampling", False)
        return Capabilities(
            model_class=own.name,
            device=str(loaded.device),
            dtype=str(loaded.dtype).removeprefix("torch."),
            tasks=frozenset(self._tasks),
            default_size=default_size(loaded.pipeline, (own.default("height"), own.default("width"))),
            modality=own.modality,
            size_multiple=self._size_multiple,
            max_rows=None if rows_have_own_noise else 1,
            versions=f"torch {torch.__version__} diffusers {diffusers.__version__}",
            mode_reason="mode='request' asks for it",
            memory_bytes=bytes_on(loaded.pipeline, loaded.device),
        )

    def _pipeline(self, task: Task) -> TaskPipeline:
        if task not in self._tasks:
            served = ", ".join(sorted(self._tasks))
            raise InvalidRequest(f"{self._config.model} does not serve {task}; it serves: {served}")
        return self._tasks[task]

    def _within_memory(self, num_rows: int, function: Callable[[], T]) -> T:
        """Raises OutOfMemory in place of whatever says so in torch's words."""
        try:
            return function()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            message = str(error).partition("\n")[0]
        # Only here is the error gone, and with it the frames that hold the tensors.
        self._release_memory()
        raise OutOfMemory(f"{num_rows} rows do not fit the device: {message}")

    def _render(self, batch: Batch, on_step: StepHook) -> Rendered:
        self._loras.activate(batch.key.loras)
        return self._finish(batch, self._call(batch, on_step))

    def _call(self, batch: Batch, on_step: StepHook, resume: Mapping[str, Any] | None = None) -> PipelineCall:
        """A call that is ready to go. `resume` is the state of an earlier one for the same batch."""
        pipeline = self._pipeline(batch.key.task)
        assert batch.key.noise_scheduler is not None
        noise_scheduler = self._noise_schedulers.fresh(batch.key.noise_scheduler)
        can_draw = self._previewer.can and pipeline.modality == "image"
        draw = functools.partial(self._draw, pipeline, batch.key) if can_draw else None
        return PipelineCall(
            pipeline.pipeline,
            noise_scheduler,
            on_step,
            resume=resume,
            device=self._device,
            draw=draw,
            execution_device=pipeline.execution_device,
        )

    def _draw(self, pipeline: TaskPipeline, key: BatchKey, latents: torch.Tensor, row: int) -> Image.Image:
        spread = pipeline.as_grid(latents[row : row + 1], key.height, key.width)
        assert spread is not None
        return self._previewer.picture(spread)

    def _learn(
        self,
        batch: Batch,
        pipeline: TaskPipeline,
        num_steps_done: int,
        rows: Sequence[Floats],
        latents: torch.Tensor | None,
    ) -> None:
        """How latents look, from finished pictures; not from a warm-up's, nor where latents are no grid of pixels."""
        is_picture = pipeline.modality == "image" and num_steps_done >= TEACHING_STEPS
        if not is_picture or latents is None or len(latents) != len(rows):
            return
        grid = pipeline.as_grid(latents, batch.key.height, batch.key.width)
        if grid is not None and bool(torch.isfinite(grid).all()) and all(bool(np.isfinite(row).all()) for row in rows):
            self._previewer.learn(grid, rows)

    def _finish(self, batch: Batch, call: PipelineCall) -> Rendered:
        pipeline = self._pipeline(batch.key.task)
        try:
            result = call(pipeline.arguments(batch), pipeline.planned_steps(batch.rows[0].request.params))
        except ValueError as error:
            if call.num_steps_done:
                raise
            raise InvalidRequest(str(error)) from error
        learn = functools.partial(self._learn, batch, pipeline, call.num_steps_done)
        landing = Landing(self._lane, raw_rows(result), call.latents, learn)
        outcomes = self._outcomes(batch, pipeline, result, landing)
        return Rendered(outcomes if self._defers else [settled(outcome) for outcome in outcomes], call.latents)

    def _outcomes(
        self, batch: Batch, pipeline: TaskPipeline, result: Any, landing: Landing
    ) -> Sequence[RowOutcome | Pending]:
        flags = result.get("nsfw_content_detected") or [False] * len(batch.rows)
        return [
            Pending(functools.partial(_output, row, pipeline, landing, at, self._warnings(row, pipeline, bool(flag))))
            for at, (row, flag) in enumerate(zip(batch.rows, flags, strict=True))
        ]

    def _warnings(self, row: Row, pipeline: TaskPipeline, withheld: bool) -> list[str]:
        params = row.request.params
        warnings = list(pipeline.ignored(row.request))
        for name, text in (("prompt", row.request.prompt), ("negative prompt", params.negative_prompt or "")):
            truncated_at = self._prompts.truncated_at(text)
            if truncated_at is not None:
                warnings.append(f"{name} truncated at token {truncated_at}")
        if withheld:
            warnings.append(f"output {row.index} was blanked by the model's safety checker")
        return warnings

    def _release_memory(self) -> None:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _task(request: DiffusionRequest) -> Task:
    if request.image is None:
        return "text2image"
    return "image2image" if request.mask_image is None else "inpaint"


def _output(row: Row, pipeline: TaskPipeline, landing: Landing, at: int, warnings: Sequence[str]) -> Output:
    """On any thread. Raises ModelError."""
    if not landing.is_finite(at):
        raise ModelError(f"output {row.index} is not finite; another dtype, seed or guidance_scale may help")
    made = media(landing.row(at), row, pipeline)
    wanted = row.request.params.num_frames
    if made.num_frames is not None and wanted not in (None, made.num_frames):
        warnings = [*warnings, f"{made.num_frames} frames instead of {wanted}: the model makes no such number"]
    return Output(made, tuple(warnings))

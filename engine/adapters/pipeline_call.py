"""One call of a diffusers pipeline that leaves no trace on it and tells of every step."""

import copy
import functools
from collections.abc import Mapping
from typing import Any

import torch

from ..adapter import StepHook


class PipelineCall:
    """A shallow view of a pipeline with a noise scheduler of its own.

    What the call keeps on itself (guidance, number of timesteps) stays on the view; weights are shared. The steps of
    the noise scheduler are the steps reported, which works for pipelines with and without a step callback. An
    exception of the hook leaves the call between two steps.
    """

    def __init__(self, pipeline: Any, noise_scheduler: Any, on_step: StepHook) -> None:
        self._on_step = on_step
        self._view = copy.copy(pipeline)
        # Through the instance dict: diffusers' own setter would also rewrite the pipeline's config.
        vars(self._view)["scheduler"] = noise_scheduler
        noise_scheduler.step = self._watch_step(noise_scheduler, noise_scheduler.step)
        noise_scheduler.set_timesteps = self._watch_timesteps(noise_scheduler, noise_scheduler.set_timesteps)
        self.num_steps_done = 0
        self.latents: torch.Tensor | None = None

    def __call__(self, arguments: Mapping[str, Any], planned_steps: int) -> Any:
        """The pipeline's output. `planned_steps` is what to say before the noise scheduler knows better."""
        self._planned_steps = planned_steps
        self._on_step("encoding", 0, planned_steps)
        try:
            return self._view(**arguments)
        except BaseException:
            self._view.maybe_free_model_hooks()
            raise

    def _watch_timesteps(self, noise_scheduler: Any, set_timesteps: Any) -> Any:
        @functools.wraps(set_timesteps)  # pipelines read its signature
        def watched(*args: Any, **kwargs: Any) -> None:
            set_timesteps(*args, **kwargs)
            self._on_step("denoising", 0, self._planned_steps)

        return watched

    def _watch_step(self, noise_scheduler: Any, step: Any) -> Any:
        @functools.wraps(step)
        def watched(*args: Any, **kwargs: Any) -> Any:
            result = step(*args, **kwargs)
            self.latents = result[0]
            self.num_steps_done += 1
            num_steps = self._num_steps(noise_scheduler)
            self._on_step("denoising", self.num_steps_done, num_steps)
            if self.num_steps_done == num_steps:
                self._on_step("decoding", num_steps, num_steps)
            return result

        return watched

    def _num_steps(self, noise_scheduler: Any) -> int:
        """The timesteps of this call, which image-to-image cuts short; never less than were done."""
        declared = vars(self._view).get("_num_timesteps", len(noise_scheduler.timesteps))
        return max(int(declared), self.num_steps_done)

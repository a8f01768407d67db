"""One call of a diffusers pipeline: it leaves no trace, tells of every step, and can go on where another stopped."""

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from PIL import Image

from ..adapter import PreviewRow, StepHook
from ..errors import InvalidRequest
from .clean_estimate import clean_estimate
from .frozen import freeze, freeze_noise_scheduler, thaw, thaw_noise_scheduler
from .late_pictures import let_pictures_stay
from .settled_device import settle_device

#: a picture of row `n` of latents `[B, …]` that are as the pipeline keeps them
DrawRow = Callable[[torch.Tensor, int], Image.Image]


class ReplayedStep(tuple[Any, ...]):
    """What `noise_scheduler.step` answered, by place or by name."""

    @property
    def prev_sample(self) -> Any:
        return self[0]


class PipelineCall:
    """A shallow view of a pipeline with a noise scheduler of its own.

    What the call keeps on itself (guidance, number of timesteps) stays on the view; weights are shared. The steps of
    the noise scheduler are the steps reported, which works for pipelines with and without a step callback. An
    exception of the hook leaves the call between two steps.

    With `resume`, the `state` of an equal call, it begins anew but takes the steps that the other had behind it from
    there: up to then the models are not asked, and the noise scheduler and the generator then stand where they stood.
    """

    def __init__(
        self,
        pipeline: Any,
        noise_scheduler: Any,
        on_step: StepHook,
        *,
        resume: Mapping[str, Any] | None = None,
        device: torch.device | None = None,
        draw: DrawRow | None = None,
        execution_device: torch.device | None = None,
    ) -> None:
        """`draw` makes a picture of a row of latents as the noise scheduler sees them. `execution_device` is what the
        pipeline would find out itself, each time anew."""
        self._draw = draw
        self._on_step = on_step
        self._resume = resume
        #: how many steps are taken from `resume`
        self.replayed_steps = 0 if resume is None else int(resume["num_steps_done"])
        self._device = device or torch.device("cpu")
        self._noise_scheduler = noise_scheduler
        self._view = copy.copy(pipeline)
        # Through the instance dict: diffusers' own setter would also rewrite the pipeline's config.
        vars(self._view)["scheduler"] = noise_scheduler
        let_pictures_stay(self._view)
        if execution_device is not None:
            settle_device(self._view, execution_device)
        noise_scheduler.step = self._watch_step(noise_scheduler.step)
        noise_scheduler.set_timesteps = self._watch_timesteps(noise_scheduler.set_timesteps)
        self.num_steps_done = 0
        self._last_step: Any = None

    @property
    def latents(self) -> torch.Tensor | None:
        """After the last step."""
        return None if self._last_step is None else self._last_step[0]

    @property
    def is_replaying(self) -> bool:
        return self.num_steps_done < self.replayed_steps

    def __call__(self, arguments: Mapping[str, Any], planned_steps: int) -> Any:
        """The pipeline's output. `planned_steps` is what to say before the noise scheduler knows better."""
        self._planned_steps = planned_steps
        self._generators = arguments.get("generator", ())
        self._on_step("encoding", 0, planned_steps)
        try:
            return self._view(**arguments)
        except BaseException:
            self._view.maybe_free_model_hooks()
            raise
        finally:  # our watchers hold this call, and the noise scheduler holds them
            vars(self._noise_scheduler).pop("step", None)
            vars(self._noise_scheduler).pop("set_timesteps", None)

    def state(self) -> dict[str, Any]:
        """At a step boundary: all that `resume` needs."""
        return {
            "num_steps_done": self.num_steps_done,
            "last_step": freeze(tuple(self._last_step)),
            "noise_scheduler": freeze_noise_scheduler(self._noise_scheduler),
            "generators": freeze([generator.get_state() for generator in self._generators]),
        }

    def _watch_timesteps(self, set_timesteps: Any) -> Any:
        @functools.wraps(set_timesteps)  # pipelines read its signature
        def watched(*args: Any, **kwargs: Any) -> None:
            try:
                set_timesteps(*args, **kwargs)
            except (ValueError, LookupError, ArithmeticError) as error:  # some need a few steps to begin with
                name = type(self._noise_scheduler).__name__
                raise InvalidRequest(
                    f"noise_scheduler {name} cannot do {self._planned_steps} steps: {error}"
                ) from error
            self._on_step("denoising", 0, self._planned_steps)

        return watched

    def _watch_step(self, step: Any) -> Any:
        @functools.wraps(step)
        def watched(*args: Any, **kwargs: Any) -> Any:
            replaying = self.num_steps_done < self.replayed_steps
            result = self._replay() if replaying else step(*args, **kwargs)
            self._last_step = result if isinstance(result, tuple) else result.to_tuple()
            self.num_steps_done += 1
            if self.num_steps_done >= self.replayed_steps:
                num_steps = self._num_steps()
                preview = None if replaying or self._draw is None else self._preview(args, kwargs)
                self._on_step("denoising", self.num_steps_done, num_steps, preview)
                if self.num_steps_done == num_steps:
                    self._on_step("decoding", num_steps, num_steps)
            return result

        return watched

    def _preview(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> PreviewRow:
        """Drawn only if somebody calls it, while the step's tensors are still at hand."""
        model_output = args[0] if args else kwargs["model_output"]
        sample = args[2] if len(args) > 2 else kwargs["sample"]

        def draw(row: int) -> Image.Image:
            assert self._draw is not None
            clean = clean_estimate(self._noise_scheduler, model_output, sample, self._last_step)
            return self._draw(clean, row)

        return draw

    def _replay(self) -> ReplayedStep:
        assert self._resume is not None
        if self.num_steps_done + 1 == self.replayed_steps:
            thaw_noise_scheduler(self._noise_scheduler, self._resume["noise_scheduler"], self._device)
            states = thaw(self._resume["generators"], torch.device("cpu"))
            for generator, state in zip(self._generators, states, strict=True):
                generator.set_state(state)
        return ReplayedStep(thaw(self._resume["last_step"], self._device))

    def _num_steps(self) -> int:
        """The timesteps of this call, which image-to-image cuts short; never less than were done."""
        declared = vars(self._view).get("_num_timesteps")
        if declared is None:
            declared = len(self._noise_scheduler.timesteps)
        return max(int(declared), self.num_steps_done)

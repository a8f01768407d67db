"""A job's request as the engine takes it: inputs fetched and decoded, and what an earlier attempt got to."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from PIL import Image

from engine import DiffusionRequest, SamplingParams
from tasks.errors import StoreUnavailable
from tasks.inputs import InputLoader, LoadedImage
from tasks.request import GenerationRequest
from tasks.tracing import Tracing
from worker.attempt import Attempt
from worker.checkpoints import Checkpoints

log = logging.getLogger(__name__)

_INPUT_PAUSE_S, _INPUT_PATIENCE_S = 2.0, 900.0


class EngineRequests:
    """`on_wait` hears of an attempt that loads an input."""

    def __init__(
        self, inputs: InputLoader, checkpoints: Checkpoints, on_wait: Callable[[Attempt], None], tracing: Tracing
    ) -> None:
        self._inputs = inputs
        self._checkpoints = checkpoints
        self._on_wait = on_wait
        self._tracing = tracing

    def make(self, attempt: Attempt) -> tuple[DiffusionRequest, tuple[str, ...]]:
        """With what was changed in the inputs. Raises `InvalidRequest`, `ValueError` for what the engine refuses."""
        wish = attempt.job.request
        images: dict[str, Image.Image] = {}
        warnings: list[str] = []
        for field, uri in (("image", wish.image), ("mask_image", wish.mask_image)):
            if uri is not None:
                with self._tracing.span("fetch inputs", {"safelight.field": field}, kind="client"):
                    loaded = self._load_image(attempt, uri, field)
                images[field] = loaded.image
                warnings += loaded.warnings
        resume = self._checkpoints.find(attempt)
        request = DiffusionRequest(
            request_id=attempt.request_id,
            prompt=wish.prompt,
            params=sampling_params(wish),
            priority=wish.priority,
            deadline_s=attempt.check_deadline(),
            solo=attempt.solo,
            resume=resume,
            **images,
        )
        return request, tuple(warnings)

    def _load_image(self, attempt: Attempt, uri: str, field: str) -> LoadedImage:
        """Wait out an object store that is away, with patience; whatever else is wrong is the request's own fault."""
        wish = attempt.job.request
        assert wish.height and wish.width
        self._on_wait(attempt)
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


def sampling_params(wish: GenerationRequest) -> SamplingParams:
    """Of a resolved request."""
    assert wish.height and wish.width and wish.num_inference_steps and wish.seed is not None
    assert wish.guidance_scale is not None
    return SamplingParams(
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

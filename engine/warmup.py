"""The first batch, before anybody waits: it allocates, compiles and proves that the model runs."""

from PIL import Image

from .adapter import Capabilities, PipelineAdapter, PreviewRow
from .batch import Batch
from .errors import ModelLoadError
from .params import SamplingParams
from .pending import settled
from .request import DiffusionRequest, Row
from .result import Stage

WARMUP_STEPS = 2
#: of a video: few, and a number that the usual temporal factors of 4 and 8 allow
WARMUP_FRAMES = 9


def warm_up(adapter: PipelineAdapter, capabilities: Capabilities) -> None:
    """Run one row of the model's own size. Raises ModelLoadError if that fails."""
    request = warmup_request(capabilities)
    try:
        batch = Batch(adapter.batch_key(request), (Row(request, 0),))
        (made,) = adapter.run(batch, _ignore)
        outcome = settled(made)
    except Exception as error:
        outcome = error
    if isinstance(outcome, Exception):
        raise ModelLoadError(f"{capabilities.model_class} failed its warm-up: {outcome}") from outcome


def warmup_request(capabilities: Capabilities) -> DiffusionRequest:
    """Two steps; with a blank image for a model that cannot do without."""
    height, width = capabilities.default_size
    needs_image = "text2image" not in capabilities.tasks
    blank = Image.new("RGB", (width, height))
    return DiffusionRequest(
        request_id="warm-up",
        prompt="warm-up",
        params=SamplingParams(
            height=height,
            width=width,
            num_inference_steps=WARMUP_STEPS,
            strength=1.0 if needs_image else None,  # a model's own may leave none of so few steps
            num_frames=WARMUP_FRAMES if capabilities.modality == "video" else None,
            seed=0,
        ),
        image=blank if needs_image else None,
        mask_image=blank.convert("L") if capabilities.tasks == {"inpaint"} else None,
    )


def _ignore(stage: Stage, step: int, num_steps: int, preview: PreviewRow | None = None) -> None:
    """Nobody watches a warm-up."""

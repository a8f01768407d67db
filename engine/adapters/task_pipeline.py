"""A diffusers pipeline in the role of one task: what its call takes, and what a batch becomes as its arguments."""

import functools
import hashlib
import inspect
from collections.abc import Hashable, Mapping
from typing import Any

import diffusers
import torch
from PIL import Image

from ..batch import Batch
from ..batch_key import Task
from ..errors import InvalidRequest
from ..params import SamplingParams
from ..request import DiffusionRequest, Row
from ..result import Modality
from .row_rules import DURATIONS_S, FALLBACK_FPS, FRAME_RATES, IMAGE_A_ROW, SEES_PADDING

AUTO_PIPELINES: dict[Task, str] = {
    "text2image": "AutoPipelineForText2Image",
    "image2image": "AutoPipelineForImage2Image",
    "inpaint": "AutoPipelineForInpainting",
}
#: latents alone, or latents with mask and masked image: what diffusers' inpainting over a UNet can feed
INPAINT_UNET_CHANNELS = (4, 9)


class TaskPipeline:
    """The call signature is read once; only arguments that it knows are ever passed."""

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline
        self._parameters = inspect.signature(pipeline.__call__).parameters
        self._guidance_name = self._choose_guidance()
        self._frame_rate_name = next(filter(self.accepts, FRAME_RATES), None)
        self._duration_name = next(filter(self.accepts, DURATIONS_S), None)

    @property
    def name(self) -> str:
        return type(self.pipeline).__name__

    def accepts(self, name: str) -> bool:
        return name in self._parameters

    def default(self, name: str) -> Any:
        """The default of an argument, None where there is no such argument."""
        return self._parameters[name].default if name in self._parameters else None

    @functools.cached_property
    def execution_device(self) -> torch.device | None:
        """Where it runs, which never changes once it is loaded; None if it does not tell."""
        return getattr(self.pipeline, "_execution_device", None)

    @property
    def modality(self) -> Modality:
        """What the pipeline makes, judged by its arguments."""
        if self._duration_name is not None:
            return "audio"
        return "video" if self.accepts("num_frames") else "image"

    @property
    def sample_rate(self) -> int:
        """Of its sound, in Hz."""
        parts = [self.pipeline.components.get(name) for name in ("vocoder", "vae")]
        rates = [part.config.to_dict() if hasattr(part.config, "to_dict") else part.config for part in parts if part]
        return int(next(rate["sampling_rate"] for rate in rates if "sampling_rate" in rate))

    def tasks(self) -> frozenset[Task]:
        """What the pipeline serves by itself, judged by its arguments."""
        if self.accepts("mask_image"):
            return frozenset({"inpaint"})
        if not self.accepts("image"):
            return frozenset({"text2image"})
        if self.accepts("strength") or self._needs_image:
            return frozenset({"image2image"})
        return frozenset({"text2image", "image2image"})

    def strength(self, params: SamplingParams) -> float | None:
        """The strength that will run, None for a pipeline without."""
        if not self.accepts("strength"):
            return None
        return float(self.default("strength") if params.strength is None else params.strength)

    def planned_steps(self, params: SamplingParams) -> int:
        """Denoise steps asked for, cut short by strength. Raises InvalidRequest when none is left."""
        strength = self.strength(params)
        if strength is None:
            return params.num_inference_steps
        num_steps = int(params.num_inference_steps * strength)
        if num_steps < 1:
            raise InvalidRequest(
                f"strength {strength:g} of {params.num_inference_steps} steps leaves no step to run; raise either"
            )
        return num_steps

    def reads_negative(self, params: SamplingParams) -> bool:
        """Whether a negative prompt was given and can be passed on."""
        return params.negative_prompt is not None and self._takes_negative

    def num_frames(self, params: SamplingParams) -> int | None:
        """The number of frames to ask for, None for a pipeline without."""
        if not self.accepts("num_frames"):
            return None
        return params.num_frames or self.default("num_frames")

    def fps(self, params: SamplingParams) -> float | None:
        """The frame rate that conditions the model, None for a pipeline that is told none."""
        if self._frame_rate_name is None or self.modality != "video":
            return None
        return params.fps or self.default(self._frame_rate_name)

    def playback_fps(self, request: DiffusionRequest) -> float:
        """At how many frames a second its video is to be shown."""
        return float(self.fps(request.params) or request.params.fps or FALLBACK_FPS)

    def duration_s(self, params: SamplingParams) -> float | None:
        """The length of sound to ask for, None for the model's own or a pipeline without."""
        return params.duration_s if self._duration_name is not None else None

    def company(self, request: DiffusionRequest) -> Hashable:
        """What else the rows of one call must share, because the pipeline takes one of it or looks at all of them."""
        images = () if self._image_a_row else (request.image, request.mask_image)
        digests = tuple(
            hashlib.sha256(image.convert("RGB").tobytes()).digest() for image in images if image is not None
        )
        num_tokens = self._num_tokens(request.prompt) if self.name in SEES_PADDING else None
        return (digests, num_tokens) if digests or num_tokens else None

    def image_size(self, request: DiffusionRequest) -> tuple[int, int] | None:
        """The (W, H) at which the conditioning image goes in: the output's, or its own for an editing pipeline."""
        if request.image is None:
            return None
        return (request.params.width, request.params.height) if self.accepts("strength") else request.image.size

    def as_grid(self, latents: torch.Tensor, height: int, width: int) -> torch.Tensor | None:
        """Latents of an image `[B, C, h, w]`, unpacked where the pipeline packs them; None if they are no such grid."""
        unpack = getattr(self.pipeline, "_unpack_latents", None)
        if latents.ndim == 3 and unpack is not None:
            latents = unpack(latents, height, width, self.pipeline.vae_scale_factor)
        if latents.ndim == 5 and latents.shape[2] == 1:
            latents = latents.squeeze(2)
        return latents if latents.ndim == 4 else None

    def ignored(self, request: DiffusionRequest) -> tuple[str, ...]:
        """One sentence for each thing asked that the pipeline cannot follow."""
        params, warnings = request.params, []
        if params.negative_prompt and not self._takes_negative:
            warnings.append(f"negative prompt ignored: {self.name} has no use for one")
        elif params.negative_prompt and params.guidance_scale <= 1:
            warnings.append("negative prompt has no effect: guidance_scale is not above 1")
        asked = (
            ("strength", params.strength, self.accepts("strength")),
            ("num_frames", params.num_frames, self.accepts("num_frames")),
            ("fps", params.fps, self.modality == "video"),
            ("duration_s", params.duration_s, self._duration_name is not None),
        )
        for name, value, is_followed in asked:
            if value is not None and not is_followed:
                warnings.append(f"{name} ignored: {self.name} takes none")
        if request.image is not None and self.image_size(request) != request.image.size:
            was = "x".join(map(str, request.image.size))
            warnings.append(f"image resized from {was} to {params.width}x{params.height}")
        return tuple(warnings)

    def arguments(self, batch: Batch) -> dict[str, Any]:
        """The keyword arguments of one call. Lists and generators are new: pipelines write into both."""
        key = batch.key
        params = batch.rows[0].request.params
        wanted: dict[str | None, Any] = {
            "prompt": [row.request.prompt for row in batch.rows],
            "height": key.height,
            "width": key.width,
            "num_inference_steps": key.num_inference_steps,
            "strength": key.strength,
            "num_frames": key.num_frames,
            "generator": [torch.Generator("cpu").manual_seed(row.seed) for row in batch.rows],
            "output_type": "np",
            self._guidance_name: key.guidance_scale,
            self._frame_rate_name: key.fps,
            self._duration_name: key.duration_s,
            "use_resolution_binning": False,  # would make another size than asked and scale it back
        }
        if self.reads_negative(params):
            wanted["negative_prompt"] = [row.request.params.negative_prompt for row in batch.rows]
        if key.image_size is not None:
            images = [_image(row, key.image_size) for row in batch.rows]
            wanted["image"] = images if self._image_a_row else images[0]
        if key.task == "inpaint" and key.image_size is not None:
            masks = [_mask(row, key.image_size) for row in batch.rows]
            wanted["mask_image"] = masks if self._image_a_row else masks[0]
        return {name: value for name, value in wanted.items() if name and value is not None and self.accepts(name)}

    @property
    def _image_a_row(self) -> bool:
        return self.accepts("strength") or self.name in IMAGE_A_ROW

    @property
    def _needs_image(self) -> bool:
        """ControlNets have a default that they then refuse."""
        has_none = self._parameters["image"].default is inspect.Parameter.empty
        return has_none or self.pipeline.components.get("controlnet") is not None

    def _num_tokens(self, prompt: str) -> int:
        tokenizer = self.pipeline.components.get("tokenizer_2") or self.pipeline.tokenizer
        return len(tokenizer(prompt, truncation=True, max_length=tokenizer.model_max_length).input_ids)

    @property
    def _takes_negative(self) -> bool:
        distilled = self.accepts("true_cfg_scale") and self._guidance_name != "true_cfg_scale"
        return self.accepts("negative_prompt") and not distilled

    def _choose_guidance(self) -> str | None:
        """`true_cfg_scale` where `guidance_scale` is an input of a distilled model that this one is not."""
        transformer = self.pipeline.components.get("transformer")
        is_distilled = transformer is not None and bool(transformer.config.get("guidance_embeds", False))
        if self.accepts("true_cfg_scale") and not is_distilled:
            return "true_cfg_scale"
        return "guidance_scale" if self.accepts("guidance_scale") else None


def pipelines_by_task(pipeline: Any) -> Mapping[Task, TaskPipeline]:
    """The pipeline itself, and its siblings of the same family over the same weights."""
    own = TaskPipeline(pipeline)
    found = dict.fromkeys(own.tasks(), own)
    for task, auto_name in AUTO_PIPELINES.items():
        if task in found or (task == "inpaint" and not _can_inpaint(pipeline)):
            continue
        try:
            sibling = getattr(diffusers, auto_name).from_pipe(pipeline)
        except (ValueError, TypeError):  # the family has none, or it needs other components
            continue
        sibling.set_progress_bar_config(disable=True)
        _share_offload(pipeline, sibling)
        role = TaskPipeline(sibling)
        if task in role.tasks() and not role.accepts("control_image"):  # a request has one image, not two
            found[task] = role
    return found


def _can_inpaint(pipeline: Any) -> bool:
    unet = pipeline.components.get("unet")
    return unet is None or unet.config.in_channels in INPAINT_UNET_CHANNELS


def _share_offload(pipeline: Any, sibling: Any) -> None:
    """Offload hooks sit on the shared modules; what the pipeline notes about them has to follow."""
    for name in ("_all_hooks", "_offload_gpu_id", "_offload_device"):
        if name in vars(pipeline):
            vars(sibling)[name] = vars(pipeline)[name]


def _image(row: Row, size: tuple[int, int]) -> Image.Image:
    assert row.request.image is not None
    image = row.request.image.convert("RGB")
    return image if image.size == size else image.resize(size, Image.Resampling.LANCZOS)


def _mask(row: Row, size: tuple[int, int]) -> Image.Image:
    assert row.request.mask_image is not None
    mask = row.request.mask_image.convert("L")
    return mask if mask.size == size else mask.resize(size, Image.Resampling.NEAREST)

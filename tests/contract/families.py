"""The random pipelines of `engine.testing_pipelines`, and how each is asked for something."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image

from engine import DiffusionRequest, SamplingParams

PROMPTS = ("a red house", "two boats at night", "", "a small blue star above a very large green moon")
NEGATIVES = ("boats", "a moon", "red", "")
STEPS = 2
REQUEST_FIELDS = {"image", "mask_image", "priority", "solo", "deadline_s"}


@dataclass(frozen=True)
class Family:
    """`params` are of the request, `plain` are more arguments of the plain call. `tolerance` is of batched rows against
    lone ones: in units of the range 0 to 1, or of the loudest sample."""

    size: int = 16
    params: Mapping[str, Any] = field(default_factory=dict)
    plain: Mapping[str, Any] = field(default_factory=dict)
    takes_image: bool = False
    takes_negative: bool = True
    guidance: str = "guidance_scale"
    tolerance: float = 1e-5

    def request(self, request_id: str = "a", prompt: str = PROMPTS[0], **changes: Any) -> DiffusionRequest:
        top = {name: value for name, value in changes.items() if name in REQUEST_FIELDS}
        rest = {name: value for name, value in changes.items() if name not in REQUEST_FIELDS}
        if self.takes_image:
            top = {"image": picture(0, self.size), **top}
        if self.takes_negative:
            rest = {"negative_prompt": NEGATIVES[0], **rest}
        base = {"height": self.size, "width": self.size, "num_inference_steps": STEPS, "seed": 0, **self.params}
        return DiffusionRequest(request_id=request_id, prompt=prompt, params=SamplingParams(**{**base, **rest}), **top)

    def call(self, pipeline: Any, wanted: DiffusionRequest) -> np.ndarray[Any, Any]:
        """What plain diffusers makes of it, as floats and without the row dimension."""
        params = wanted.params
        arguments: dict[str, Any] = {
            "prompt": wanted.prompt,
            "num_inference_steps": params.num_inference_steps,
            self.guidance: params.guidance_scale,
            "generator": torch.Generator("cpu").manual_seed(params.seed),
            "output_type": "np",
            **self.plain,
        }
        if "duration_s" not in self.params:
            arguments |= {"height": params.height, "width": params.width}
        if params.negative_prompt is not None and self.takes_negative:
            arguments["negative_prompt"] = params.negative_prompt
        if params.num_frames is not None:
            arguments["num_frames"] = params.num_frames
        if wanted.image is not None:
            arguments["image"] = wanted.image
        result = pipeline(**arguments)
        rows = next(result[name] for name in ("images", "frames", "audios") if name in result)
        return np.asarray(rows[0])


FAMILIES: dict[str, Family] = {
    "stable_diffusion": Family(),
    "stable_diffusion_xl": Family(),
    "stable_diffusion_controlnet": Family(takes_image=True),
    "stable_diffusion_3": Family(),
    "flux": Family(takes_negative=False),
    "qwen_image": Family(guidance="true_cfg_scale"),
    "z_image": Family(),
    "pixart_sigma": Family(plain={"use_resolution_binning": False}),
    "sana": Family(size=32, plain={"use_resolution_binning": False}),
    "wan": Family(params={"num_frames": 5}),
    "wan_image_to_video": Family(params={"num_frames": 5}, takes_image=True),
    "ltx": Family(size=32, params={"num_frames": 9, "fps": 24}, plain={"frame_rate": 24}),
    "stable_audio": Family(params={"duration_s": 0.2}, plain={"audio_end_in_s": 0.2}),
    "audioldm2": Family(params={"duration_s": 0.05}, plain={"audio_length_in_s": 0.05}),
}


def picture(seed: int, size: int = 16) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8))

"""Random diffusers pipelines of 0.4 to 2.3 MB, built from configs: for tests of adapters, offline and fast.

Needs the `worker` extra. What they make means nothing, but every input (prompt, negative prompt, seed, guidance, image)
shows in it, which is what a test of mixing needs. Each survives `save_pretrained` and `from_pretrained`.
"""

from .flow_matching import flux, stable_diffusion_3
from .pixart import pixart_sigma, sana
from .qwen import qwen_image, z_image
from .sound import audioldm2, stable_audio
from .stable_diffusion import stable_diffusion, stable_diffusion_controlnet, stable_diffusion_xl
from .video import ltx, wan, wan_image_to_video

__all__ = [
    "audioldm2",
    "flux",
    "ltx",
    "pixart_sigma",
    "qwen_image",
    "sana",
    "stable_audio",
    "stable_diffusion",
    "stable_diffusion_3",
    "stable_diffusion_controlnet",
    "stable_diffusion_xl",
    "wan",
    "wan_image_to_video",
    "z_image",
]

"""Why a pipeline must not be served step by step: what is known to be wrong is refused in words."""

from typing import Any

import torch

from ..config import EngineConfig

DENOISERS = ("unet", "transformer", "transformer_2", "controlnet", "prior", "decoder")

#: They change the shared denoiser while they run (attention processors, hooks), under the feet of every other request.
MUTATES_DENOISER = ("PAG", "AttendAndExcite", "SAG", "LEdits", "SemanticStableDiffusion", "Pix2PixZero", "DiffEdit")


def why_not(pipeline: Any, config: EngineConfig, *, accepts_generator: bool) -> str | None:
    """One reason, None when nothing speaks against step mode."""
    name = type(pipeline).__name__
    if config.offload is not None:
        return f"offload={config.offload!r} moves whole models for each call and would do so at every step"
    if any(part in name for part in MUTATES_DENOISER):
        return f"{name} changes its denoiser while it runs, which others would feel"
    denoisers = denoisers_of(pipeline)
    if not denoisers:
        return f"{name} has none of {', '.join(DENOISERS)}, so that there is no call to share"
    if not accepts_generator:
        return f"{name} takes no generator, so that its noise would depend on its company"
    if pipeline.scheduler.config.get("stochastic_sampling", False):
        return "stochastic_sampling draws noise from the process's own generator"
    for component, denoiser in denoisers.items():
        if getattr(denoiser, "is_cache_enabled", False):
            return f"a step cache is enabled on {component}; it remembers one request's steps"
    return None


def denoisers_of(pipeline: Any) -> dict[str, torch.nn.Module]:
    found = {name: pipeline.components.get(name) for name in DENOISERS}
    return {name: module for name, module in found.items() if isinstance(module, torch.nn.Module)}

"""Options of diffusers' own, set on a pipeline before it serves: how its VAE saves memory, how its denoiser attends."""

from typing import Any

from diffusers.models.attention_dispatch import attention_backend

from ..config import EngineConfig
from .step_safety import denoisers_of


class OptionRefused(ValueError):
    """The pipeline does not have this option, or the machine not what it needs."""


def apply_options(pipeline: Any, config: EngineConfig) -> None:
    """Raises OptionRefused naming the field of the config."""
    if config.vae_tiling:
        _switch_on_vae(pipeline, "vae_tiling", "enable_tiling")
    if config.vae_slicing:
        _switch_on_vae(pipeline, "vae_slicing", "enable_slicing")
    if config.attention_backend is not None:
        _set_attention(pipeline, config.attention_backend)


def _switch_on_vae(pipeline: Any, option: str, method: str) -> None:
    vae = pipeline.components.get("vae")
    try:
        getattr(vae, method)()
    except (AttributeError, NotImplementedError):
        name = f"{type(pipeline).__name__} has no VAE" if vae is None else f"{type(vae).__name__} has none"
        raise OptionRefused(f"{option}: {name}") from None


def _set_attention(pipeline: Any, backend: str) -> None:
    denoisers: list[Any] = [model for model in denoisers_of(pipeline).values() if _has_choice(model)]
    if not denoisers:
        kinds = ", ".join(type(model).__name__ for model in denoisers_of(pipeline).values())
        raise OptionRefused(f"attention_backend: {kinds} has an attention of its own that cannot be chosen")
    # diffusers also makes it the default of the process; that of other models is put back here.
    with attention_backend():
        for model in denoisers:
            try:
                model.set_attention_backend(backend)
            except (ValueError, RuntimeError, ImportError) as error:
                raise OptionRefused(f"attention_backend: {error}") from error


def _has_choice(model: Any) -> bool:
    """Whether any of its attention processors can be told a backend."""
    processors = [getattr(module, "processor", None) for module in model.modules()]
    return hasattr(model, "set_attention_backend") and any(hasattr(one, "_attention_backend") for one in processors)

"""Adapters of real models. Importing this package imports neither torch nor diffusers."""

from ..adapter import PipelineAdapter
from ..config import EngineConfig
from ..errors import ModelLoadError


def diffusers_adapter(config: EngineConfig) -> PipelineAdapter:
    """Raises ModelLoadError when torch, diffusers or transformers cannot be imported."""
    try:
        if config.mode == "request":
            from .whole import WholePipeline as Adapter
        else:
            from .stepwise import StepPipeline as Adapter
    except ImportError as error:
        raise ModelLoadError(f"cannot serve {config.model}: {error}. Try: pip install 'safelight[worker]'") from error
    return Adapter(config, defers=True)

"""Adapters of real models. Importing this package imports neither torch nor diffusers."""

from ..adapter import PipelineAdapter
from ..config import EngineConfig
from ..errors import ModelLoadError


def whole_pipeline(config: EngineConfig) -> PipelineAdapter:
    """Raises ModelLoadError when torch, diffusers or transformers cannot be imported."""
    try:
        from .whole import WholePipeline
    except ImportError as error:
        raise ModelLoadError(f"cannot serve {config.model}: {error}. Try: pip install 'safelight[worker]'") from error
    return WholePipeline(config)

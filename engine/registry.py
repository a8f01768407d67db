"""From the name of a model to the adapter that serves it. Imports are late: only the chosen one's weight is carried."""

from .adapter import PipelineAdapter
from .config import EngineConfig

FAKE = "fake:"


def make_adapter(config: EngineConfig) -> PipelineAdapter:
    """`fake:…` gives the fake of `engine.testing`, anything else a diffusers pipeline; not loaded yet.

    Raises ValueError for a malformed fake, ModelLoadError when the packages of the `worker` extra are missing.
    """
    if config.model.startswith(FAKE):
        from .testing import FakeAdapter

        return FakeAdapter.from_spec(config.model.removeprefix(FAKE), config.mode)
    from .adapters import diffusers_adapter

    return diffusers_adapter(config)

"""The device of a pipeline, asked once and not a dozen times a call.

diffusers finds out where a pipeline runs by going through all modules of all its models, for which SDXL asks ten times
a call. With the modules of the real one that is some hundred milliseconds of Python, in which no row goes on.
"""

import functools
from collections.abc import Hashable
from typing import Any, cast

import torch
from diffusers import DiffusionPipeline


def settle_device(view: Any, device: torch.device) -> None:
    """Let the view of a pipeline answer with `device`, unless its class has a way of its own to tell."""
    kind = type(view)
    if getattr(kind, "_execution_device", None) is DiffusionPipeline._execution_device:
        view.__class__ = _with_device(cast(Hashable, kind), device)


@functools.lru_cache(maxsize=64)
def _with_device(kind: Any, device: torch.device) -> Any:
    """The same class by every name: what a pipeline is called is in messages and decides how it is served."""
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind)(kind.__name__, (kind,), {**names, "_execution_device": device})

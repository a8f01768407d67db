"""The shape of a model's answer, and zeros of that shape: what a resumed call is told for steps it has behind it."""

from collections.abc import Mapping
from typing import Any

import torch


class NamedZeros(tuple[Any, ...]):
    """An output by place, as in `output[0]`, and by name, as in `output.sample`."""

    names: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.names:
            raise AttributeError(name)
        return self[self.names.index(name)]


def outline(answer: Any) -> Any:
    """Numbers and texts only. Raises TypeError for an answer with something else than tensors in it."""
    if answer is None:
        return None
    if isinstance(answer, torch.Tensor):
        return {"shape": list(answer.shape), "dtype": str(answer.dtype).removeprefix("torch.")}
    if isinstance(answer, Mapping):
        return {"names": list(answer), "items": [outline(item) for item in answer.values()]}
    if isinstance(answer, list | tuple):
        return type(answer)(outline(item) for item in answer)
    raise TypeError(f"a model's answer holds a {type(answer).__name__}")


def zeros(outlined: Any, device: torch.device) -> Any:
    """Fresh zeros, so that a pipeline may work in place."""
    if outlined is None:
        return None
    if isinstance(outlined, Mapping) and "shape" in outlined:
        return torch.zeros(list(outlined["shape"]), dtype=getattr(torch, outlined["dtype"]), device=device)
    if isinstance(outlined, Mapping):
        named = NamedZeros(zeros(item, device) for item in outlined["items"])
        named.names = tuple(outlined["names"])
        return named
    return type(outlined)(zeros(item, device) for item in outlined)

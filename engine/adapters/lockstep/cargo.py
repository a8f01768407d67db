"""The arguments of a forward from the leader to its followers: a plan as plain data, the tensors by broadcast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def stow(value: Any, tensors: list[torch.Tensor]) -> Any:
    """The plan of a value; its tensors are appended in the order in which `unstow` wants them. TypeError for others."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        on_cpu = value.device.type == "cpu"
        return {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape), "on_cpu": on_cpu}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return {type(value).__name__: [stow(item, tensors) for item in value]}
    if isinstance(value, Mapping):
        return {"dict": [[str(key), stow(item, tensors)] for key, item in value.items()]}
    raise TypeError(f"a denoiser that is given a {type(value).__name__} cannot be spread over devices")


def unstow(plan: Any, receive: Callable[[torch.dtype, list[int], bool], torch.Tensor]) -> Any:
    """The value again. `receive` gives the next tensor, by dtype, shape and whether it was on the CPU."""
    if not isinstance(plan, dict):
        return plan
    if "dtype" in plan:
        return receive(getattr(torch, plan["dtype"]), plan["shape"], plan["on_cpu"])
    if "dict" in plan:
        return {key: unstow(item, receive) for key, item in plan["dict"]}
    ((kind, items),) = plan.items()
    return {"list": list, "tuple": tuple}[kind](unstow(item, receive) for item in items)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """A flat view of the bytes of a contiguous tensor, which every back end can send, whatever they mean."""
    # A lone element counts as contiguous whatever its stride, which the view of bytes does not take.
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)

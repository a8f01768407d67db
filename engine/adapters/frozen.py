"""Torch tensors and noise scheduler states as plain arrays, and back; bit by bit, since numpy lacks bfloat16."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

#: of a noise scheduler, what its configuration makes anew
NOT_STATE = frozenset({"_internal_dict", "config"})


def freeze(value: Any) -> Any:
    """Tensors become `{"tensor": bits, "dtype": name}`; sequences and dicts are gone through."""
    if isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous()
        shape = list(flat.shape)
        bits = flat.reshape(-1).view(torch.uint8).numpy().copy()
        return {"tensor": bits, "dtype": str(value.dtype).removeprefix("torch."), "shape": shape}
    if isinstance(value, list | tuple):
        return type(value)(freeze(item) for item in value)
    if isinstance(value, Mapping):
        return {"mapping": [[key, freeze(item)] for key, item in value.items()]}
    return value


def thaw(value: Any, device: torch.device) -> Any:
    """Undo `freeze`, tensors on `device`."""
    if isinstance(value, Mapping) and "tensor" in value:
        dtype = getattr(torch, value["dtype"])
        bits = torch.from_numpy(np.array(value["tensor"], dtype=np.uint8))
        return bits.view(dtype).reshape(value["shape"]).to(device)
    if isinstance(value, Mapping):
        return {key: thaw(item, device) for key, item in value["mapping"]}
    if isinstance(value, list | tuple):
        return type(value)(thaw(item, device) for item in value)
    return value


def freeze_noise_scheduler(noise_scheduler: Any) -> dict[str, Any]:
    """Everything that it remembers between two steps, and on which device each tensor of it was."""
    state = {
        name: value for name, value in vars(noise_scheduler).items() if name not in NOT_STATE and not callable(value)
    }
    return {name: [freeze(value), _device(value)] for name, value in state.items()}


def thaw_noise_scheduler(noise_scheduler: Any, state: Mapping[str, Any], device: torch.device) -> None:
    """Put back what `freeze_noise_scheduler` took."""
    for name, (value, where) in state.items():
        vars(noise_scheduler)[name] = thaw(value, torch.device("cpu") if where == "cpu" else device)


def _device(value: Any) -> str:
    """`cpu` for what lives there even when the model does not, as most schedulers' sigmas."""
    if isinstance(value, torch.Tensor):
        return value.device.type
    if isinstance(value, list | tuple):
        return next((found for found in map(_device, value) if found), "")
    return ""

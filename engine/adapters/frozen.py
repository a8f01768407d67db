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


def row_of(frozen: Any, index: int, num_rows: int) -> Any:
    """Of a frozen value whose tensors `[num_rows, …]` have two sides or more, those of one row; tables are of all."""
    if isinstance(frozen, Mapping) and "tensor" in frozen:
        shape = frozen["shape"]
        if len(shape) < 2 or shape[0] != num_rows:
            return frozen
        bits = frozen["tensor"].reshape(num_rows, -1)[index].copy()
        return {"tensor": bits, "dtype": frozen["dtype"], "shape": [1, *shape[1:]]}
    if isinstance(frozen, Mapping):
        return {"mapping": [[key, row_of(item, index, num_rows)] for key, item in frozen["mapping"]]}
    if isinstance(frozen, list | tuple):
        return type(frozen)(row_of(item, index, num_rows) for item in frozen)
    return frozen


def state_of_row(state: Mapping[str, Any], index: int, num_rows: int) -> dict[str, Any]:
    """Of the state of a pipeline call, what one of its rows needs to go on alone. Raises TypeError."""
    latents = state["last_step"][0]
    if latents["shape"][0] != num_rows:
        raise TypeError(f"latents of shape {latents['shape']} do not say what belongs to which of {num_rows} rows")
    return {
        **state,
        "last_step": row_of(state["last_step"], index, num_rows),
        "noise_scheduler": {
            name: [row_of(value, index, num_rows), where] for name, (value, where) in state["noise_scheduler"].items()
        },
        "generators": [state["generators"][index]],
    }


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

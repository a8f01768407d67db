"""How large a pipeline's weights are."""

from typing import Any

import torch


def bytes_on(pipeline: Any, device: torch.device) -> int:
    """Of all weights and buffers that lie on the device, those that models share counted once."""
    models = [part for part in pipeline.components.values() if isinstance(part, torch.nn.Module)]
    tensors = {id(tensor): tensor for model in models for tensor in (*model.parameters(), *model.buffers())}
    return sum(one.numel() * one.element_size() for one in tensors.values() if one.device.type == device.type)

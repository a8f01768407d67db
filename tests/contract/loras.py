"""Random LoRAs for the random pipelines: small files whose effect shows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

ATTENTION = ("to_q", "to_k", "to_v", "to_out.0", "q_proj", "k_proj", "v_proj", "out_proj")
RANK = 2


def write_lora(pipeline: Any, components: Sequence[str], file: Path, seed: int) -> Path:
    """Every attention layer of the components, in the names that diffusers saves."""
    draw = torch.Generator().manual_seed(seed)
    weights: dict[str, torch.Tensor] = {}
    for component in components:
        for name, module in pipeline.components[component].named_modules():
            if isinstance(module, torch.nn.Linear) and name.endswith(ATTENTION):
                down = torch.randn(RANK, module.in_features, generator=draw)
                up = torch.randn(module.out_features, RANK, generator=draw)
                weights[f"{component}.{name}.lora_A.weight"] = 0.3 * down
                weights[f"{component}.{name}.lora_B.weight"] = 0.3 * up
    assert weights
    save_file(weights, file)
    return file

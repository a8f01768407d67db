"""How a denoiser is divided among the devices of a company, alike on each of them.

`context`: each attends for a part of the sequence. `tensor`: each keeps and computes a part of every layer's heads and
columns. Both by diffusers' own `enable_parallelism`, for the models that have its plan. `shard`: each keeps a part of
every block's weights, and the others' only while the block runs (FSDP): a larger model fits, traffic is the price.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ...config import Parallel


def join(device: torch.device, rank: int, world: int, store: str, timeout_s: float) -> None:
    """Meet the others. Returns when all are there."""
    if device.type == "cpu":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # one machine; its name may lead to no address
    else:
        torch.get_device_module(device.type).set_device(device)
    dist.init_process_group(
        "gloo" if device.type == "cpu" else "nccl",
        init_method=f"file://{store}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout_s),
    )


def spread(model: Any, kind: Parallel, device: torch.device, world: int) -> None:
    """Divide a model among all who have joined. Raises what diffusers or torch say against it."""
    if kind == "context":
        _spread_context(model, device, world)
    elif kind == "tensor":
        _spread_tensor(model, device, world)
    else:
        _shard(model, device, world)


def _spread_context(model: Any, device: torch.device, world: int) -> None:
    """Any sequence length and number of heads: what a request's size gives need not be divisible."""
    from diffusers import ContextParallelConfig

    with _counted(device):
        model.enable_parallelism(config=ContextParallelConfig(ulysses_degree=world, ulysses_anything=True))


def _spread_tensor(model: Any, device: torch.device, world: int) -> None:
    """What the model's plan does not name is whole on each device."""
    try:
        from diffusers import TensorParallelConfig
    except ImportError:
        raise RuntimeError("this diffusers has no tensor parallelism yet; upgrade it (0.42 has it)") from None
    with _counted(device), _allowed(device):
        model.enable_parallelism(config=TensorParallelConfig(tp_degree=world))
    model.to(device)


@contextmanager
def _allowed(device: torch.device) -> Iterator[None]:
    """diffusers has a list of devices for this, without the CPU, on which torch itself does it as well."""
    from diffusers.hooks import tensor_parallel

    listed = tensor_parallel._SUPPORTED_TP_DEVICES
    if device.type == "cpu":
        tensor_parallel._SUPPORTED_TP_DEVICES = (*listed, "cpu")
    try:
        yield
    finally:
        tensor_parallel._SUPPORTED_TP_DEVICES = listed


@contextmanager
def _counted(device: torch.device) -> Iterator[None]:
    """diffusers takes the rank modulo the number of accelerators, which is 0 where the CPU stands in for them."""
    if device.type != "cpu" or torch.accelerator.device_count() > 0:
        yield
        return
    count = torch.accelerator.device_count
    torch.accelerator.device_count = lambda: 1
    try:
        yield
    finally:
        torch.accelerator.device_count = count


def _shard(model: torch.nn.Module, device: torch.device, world: int) -> None:
    """Block by block, the rest whole: a block fetches its weights when it is called, however the model itself is."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    blocks = [block for child in model.children() if isinstance(child, torch.nn.ModuleList) for block in child]
    if not blocks:
        raise ValueError(f"{type(model).__name__} has no list of blocks to divide")
    mesh = init_device_mesh(device.type, (world,))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    model.to(device)

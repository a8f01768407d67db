"""A follower: holds the denoisers alone, makes each forward of its leader's along, and ends with it."""

from __future__ import annotations

import os
import queue
import sys
import threading
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from ...config import EngineConfig
from ...executors.channel import Channel
from ...executors.child import from_parent
from ..loading import read_denoisers, resolve_device
from .cargo import bits, unstow
from .spread import join, spread


def main(argv: list[str]) -> None:
    """Serve until the leader is gone, which ends the process."""
    channel = from_parent(argv)
    word, config, rank, store = channel.receive()
    assert word == "muster" and isinstance(config, EngineConfig)
    orders: queue.SimpleQueue[tuple[str, str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(channel, orders), name="safelight-orders", daemon=True).start()
    try:
        device = resolve_device(config.devices[rank])
        models = read_denoisers(replace(config, device=config.devices[rank], devices=(), parallel=None))
        channel.post("ready")
        join(device, rank, len(config.devices), store, config.wave_deadline_s)
        assert config.parallel is not None
        for model in models.values():
            if config.parallel == "context":
                model.to(device)
            spread(model, config.parallel, device, len(config.devices))
        channel.post("ready")
    except Exception as error:
        channel.post(f"{type(error).__name__}: {error}")
        channel.flush(5.0)
        os._exit(1)
    _serve(models, device, orders)


def _serve(
    models: dict[str, torch.nn.Module], device: torch.device, orders: queue.SimpleQueue[tuple[str, str, Any]]
) -> None:
    def receive(dtype: torch.dtype, shape: list[int], on_cpu: bool) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=dtype, device=device)
        dist.broadcast(bits(tensor), 0)
        return tensor.cpu() if on_cpu else tensor

    with torch.inference_mode():
        while True:
            _, name, plan = orders.get()
            args, kwargs = unstow(plan, receive)
            models[name](*args, **kwargs)


def _read(channel: Channel, orders: queue.SimpleQueue[tuple[str, str, Any]]) -> None:
    try:
        while True:
            orders.put(channel.receive())
    except EOFError:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Several one-thread processes training one model: they average gradients and agree on how far the schedule is.

On a shared machine two such processes keep a steady pace where one process with two threads starves.
"""

import argparse
import time
from collections.abc import Iterator
from datetime import datetime

import torch
import torch.distributed as dist
from torch import nn


def clock(text: str) -> float:
    """The Unix time of today's `HH:MM`."""
    hour, minute = map(int, text.split(":"))
    return datetime.now().replace(hour=hour, minute=minute, second=0).timestamp()


def add_arguments(parser: argparse.ArgumentParser, port: int) -> None:
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--port", type=int, default=port)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--until", type=clock, default=0.0, help="HH:MM, instead of --minutes")


def join(args: argparse.Namespace, seed: int) -> None:
    """Meet the other ranks; one thread and one seed for each."""
    torch.set_num_threads(1)
    torch.manual_seed(seed + args.rank)
    if args.world > 1:
        address = f"tcp://127.0.0.1:{args.port}"
        dist.init_process_group("gloo", init_method=address, rank=args.rank, world_size=args.world)


def schedule(args: argparse.Namespace) -> Iterator[float]:
    """The share of the time gone, as rank 0 sees it, until it is all gone."""
    started = time.time()
    length = args.until - started if args.until else args.minutes * 60
    while True:
        progress = torch.tensor([(time.time() - started) / length])
        if args.world > 1:
            dist.broadcast(progress, 0)
        if progress.item() >= 1:
            return
        yield progress.item()


def average_gradients(params: list[nn.Parameter], world: int, clip: float = 1.0) -> None:
    """Replace each gradient by the mean over the ranks, clipped to a global norm."""
    grads = [param.grad for param in params if param.grad is not None]
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    if world > 1:
        dist.all_reduce(flat)
    flat /= world
    flat *= min(1.0, clip / (float(flat.norm()) + 1e-6))
    for grad, part in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(part.view(grad.shape))

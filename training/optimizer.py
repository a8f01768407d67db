"""Muon for weight matrices, AdamW for the rest, over gradients already averaged between the workers.

Muon: momentum, then the nearest orthogonal matrix by Newton-Schulz steps (Jordan et al. 2024), scaled to the usual step
size of AdamW (Liu et al. 2025), so that one learning rate serves both. Each worker turns its share of the matrices.
"""

from collections import defaultdict

import torch
import torch.distributed as dist
from torch import Tensor, nn

ORTHOGONALISE = (3.4445, -4.7750, 2.0315)
MOMENTUM = 0.95
MATCH_ADAM = 0.2


def orthogonalise(matrices: Tensor, steps: int = 4) -> Tensor:
    """Batch `[N, m, n]`, m <= n, with all singular values moved near 1."""
    a, b, c = ORTHOGONALISE
    x = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def _as_matrix(tensor: Tensor) -> Tensor:
    flat = tensor.reshape(tensor.shape[0], -1)
    return flat if flat.shape[0] <= flat.shape[1] else flat.mT


class Muon:
    """Updates 2-D and 4-D weights in place."""

    def __init__(self, weights: list[nn.Parameter], rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.momenta = [torch.zeros_like(w) for w in weights]
        groups: dict[torch.Size, list[int]] = defaultdict(list)
        for i, weight in enumerate(weights):
            groups[_as_matrix(weight).shape].append(i)
        self.weights, self.groups = weights, list(groups.values())

    @torch.no_grad()
    def step(self, lr: float) -> None:
        if not self.weights:
            return
        updates = [torch.zeros_like(w, memory_format=torch.contiguous_format) for w in self.weights]
        grads = [w.grad for w in self.weights if w.grad is not None]
        torch._foreach_lerp_(self.momenta, grads, 1 - MOMENTUM)
        for group in self.groups:
            mine = group[self.rank :: self.world]
            if not mine:
                continue
            nesterov = [torch.lerp(grads[i], self.momenta[i], MOMENTUM) for i in mine]
            turned = orthogonalise(torch.stack([_as_matrix(g) for g in nesterov]))
            for i, matrix in zip(mine, turned, strict=True):
                weight = self.weights[i]
                flat = matrix if weight.shape[0] <= weight[0].numel() else matrix.mT
                updates[i] = flat.reshape(weight.shape) * (MATCH_ADAM * max(matrix.shape) ** 0.5)
        if self.world > 1:
            flat_updates = torch.cat([u.reshape(-1) for u in updates])
            dist.all_reduce(flat_updates)
            updates = [
                part.view(w.shape)
                for part, w in zip(flat_updates.split([w.numel() for w in self.weights]), self.weights, strict=True)
            ]
        for weight, update in zip(self.weights, updates, strict=True):
            weight.mul_(1 - 0.01 * lr).add_(update, alpha=-lr)

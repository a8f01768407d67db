"""The way of finished tensors from the device to the host, beside the stream on which the device goes on.

On CUDA: into pinned memory, on a stream of its own that waits for what was queued before; whoever wants the values
waits for an event. On other devices the tensors are where they should be, or are fetched by whoever wants them.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch


class Arrival(Protocol):
    """When a copy is there."""

    def synchronize(self) -> None: ...


class CopyLane:
    """Of one device. `send` on the device thread; it waits for nothing."""

    def __init__(self, device: torch.device) -> None:
        self._side: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def send(self, tensors: Sequence[torch.Tensor]) -> "HostCopy":
        if self._side is None:
            return HostCopy(tensors, _There())
        self._side.wait_stream(torch.cuda.current_stream(self._side.device))
        with torch.cuda.stream(self._side):
            copies = [self._copy(tensor) for tensor in tensors]
            arrival: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrival.record(self._side)
        return HostCopy(copies, arrival)

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_cuda:
            return tensor
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
        tensor.record_stream(self._side)  # its memory is not used again before it is copied
        return copy


class HostCopy:
    """Tensors on their way; `wait` on any thread."""

    def __init__(self, tensors: Sequence[torch.Tensor], arrival: Arrival) -> None:
        self._tensors = tensors
        self._arrival = arrival

    def wait(self) -> Sequence[torch.Tensor]:
        """On the host. Raises RuntimeError if the device fails before."""
        self._arrival.synchronize()
        return [tensor.cpu() for tensor in self._tensors]


class _There:
    """Of tensors that need no copy, or that `wait` itself fetches."""

    def synchronize(self) -> None:
        """At once."""

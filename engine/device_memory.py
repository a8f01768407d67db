"""How much memory a device has, for whoever watches it. Never allocates, and never imports torch by itself."""

import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Of the whole device, other processes included."""

    used_bytes: int
    free_bytes: int


def device_memory(device: str) -> DeviceMemory | None:
    """None for a device without memory of its own, or one that no longer answers."""
    torch = _torch_of(device)
    try:
        free, total = (0, 0) if torch is None else torch.cuda.mem_get_info(device)
    except RuntimeError:
        return None
    return DeviceMemory(total - free, free) if total else None


def room_bytes(device: str) -> int | None:
    """What another model could take: what is free, and what this process holds of it in reserve. None as above."""
    memory, torch = device_memory(device), _torch_of(device)
    if memory is None or torch is None:
        return None
    reserve: int = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return memory.free_bytes + reserve


class PeakMemory:
    """What work needs of a device while it goes on, beside what was there before; 0 where nobody counts."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._torch = _torch_of(device)
        self._before = 0
        if self._torch is not None:
            self._torch.cuda.reset_peak_memory_stats(device)
            self._before = self._torch.cuda.memory_allocated(device)

    @property
    def bytes(self) -> int:
        if self._torch is None:
            return 0
        return int(self._torch.cuda.max_memory_allocated(self._device)) - self._before


def _torch_of(device: str) -> Any:
    return sys.modules.get("torch") if device.startswith("cuda") else None

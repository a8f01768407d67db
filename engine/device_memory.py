"""How much memory a device has, for whoever watches it. Reads, never allocates, and never imports torch by itself."""

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Of the whole device, other processes included."""

    used_bytes: int
    free_bytes: int


def device_memory(device: str) -> DeviceMemory | None:
    """None for a device without memory of its own, or one that no longer answers."""
    torch = sys.modules.get("torch")
    if torch is None or not device.startswith("cuda"):
        return None
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:
        return None
    return DeviceMemory(total - free, free)

"""How much of its device a model takes, and how much there is, before anybody has measured it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine import room_bytes
from tasks.doctor.judge.models import needed_bytes
from tasks.doctor.probe.models import look_at
from tasks.errors import ConfigError
from tasks.model_room import Need, misfit
from tasks.models import ModelSpec
from worker.probe import torch_facts


def device_of(spec: ModelSpec) -> str:
    """Where it will be: `cpu`, `mps`, `cuda:0`, …"""
    if spec.source.startswith("fake:"):
        return "cpu"
    if spec.device != "auto":
        return "cuda:0" if spec.device == "cuda" else spec.device
    facts = torch_facts()
    return "cuda:0" if facts.get("cuda_devices") else "mps" if facts.get("has_mps") else "cpu"


def expected_bytes(spec: ModelSpec) -> int:
    """What the entry states, else by the weights on disk; 0 where nobody knows."""
    facts = look_at(spec)
    return needed_bytes(spec, facts, torch_facts() if facts.components else {})


def room_of(device: str, bound_bytes: int | None, taken_bytes: int) -> int | None:
    """Bytes that another model may take of a device whose loaded models take `taken_bytes`; None: no bound."""
    told = [] if bound_bytes is None else [bound_bytes - taken_bytes]
    measured = room_bytes(device)
    told += [] if measured is None else [measured]
    return min(told, default=None)


def require_fit(needs: Mapping[str, Sequence[Need]], bound_bytes: int | None) -> None:
    """By device. Raises `ConfigError` for a model that could never be loaded under a stated bound."""
    for models in needs.values():
        trouble = None if bound_bytes is None else misfit(models, bound_bytes)
        if trouble is not None:
            raise ConfigError(f"SAFELIGHT_MODEL_MEMORY_MB: {trouble}")

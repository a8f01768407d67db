"""`python -m worker.probe`: what this machine's packages and devices can do, as one line of JSON. Loads no model."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.adapters.noise_schedulers import SHORT_NAMES
from tasks.errors import ConfigError
from tasks.models import ModelSpec, load_models
from tasks.settings import read_settings
from worker.capacity import engine_config

PACKAGES = ("torch", "diffusers", "transformers", "accelerate", "safetensors", "peft", "greenlet", "numpy", "av")
_DRIVER = Path("/proc/driver/nvidia/version")


def main() -> int:
    facts: dict[str, Any] = {"packages": _packages(), "driver": _driver(), **_memory(), **torch_facts()}
    facts |= {"classes": _diffusers_names(), "noise_schedulers": dict(SHORT_NAMES), "models": _models()}
    print(json.dumps(facts))
    return 0


def _packages() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def _driver() -> str | None:
    """NVIDIA's, as its kernel module says, whether torch can use it or not."""
    try:
        found = re.search(r"Kernel Module\D*([0-9][0-9.]+)", _DRIVER.read_text("utf-8"))
    except OSError:
        return None
    return found[1] if found else "unknown"


def _memory() -> dict[str, int]:
    """What this machine's programs may still take, and all there is; 0 where the system does not say."""
    text = ""
    with contextlib.suppress(OSError):
        text = Path("/proc/meminfo").read_text("utf-8")
    found = {name: int(kib) * 1024 for name, kib in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}
    return {"memory_bytes": found.get("MemAvailable", 0), "memory_total_bytes": found.get("MemTotal", 0)}


def torch_facts() -> dict[str, Any]:
    """What torch says of its build and devices."""
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            import torch

            has_cuda = torch.cuda.is_available()
            devices = [_cuda(torch, index) for index in range(torch.cuda.device_count())] if has_cuda else []
    except Exception as error:  # a broken build of torch raises what it likes
        return {"broken": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
    return {
        "cuda_build": torch.version.cuda,
        "cuda_devices": devices,
        "cuda_visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "cuda_trouble": next((str(each.message).splitlines()[0] for each in said if "CUDA" in str(each.message)), None),
        "has_mps": torch.backends.mps.is_available(),
        "num_threads": torch.get_num_threads(),
    }


def _cuda(torch: Any, index: int) -> dict[str, Any]:
    try:
        with torch.cuda.device(index):
            free, total = torch.cuda.mem_get_info(index)
            has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    except Exception as error:  # one sick device must not hide the others
        return {"index": index, "broken": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    name = torch.cuda.get_device_name(index)
    return {"index": index, "name": name, "free_bytes": free, "total_bytes": total, "has_bf16": has_bf16}


def _diffusers_names() -> list[str]:
    """Of its pipelines and schedulers, read from its table of contents: importing it takes seconds."""
    spec = importlib.util.find_spec("diffusers")
    if spec is None or spec.origin is None:
        return []
    return sorted(set(re.findall(r'"(\w*(?:Pipeline|Scheduler)\w*)"', Path(spec.origin).read_text("utf-8"))))


def _models() -> dict[str, Any]:
    try:
        return {spec.name: _model(spec) for spec in load_models(read_settings().models)}
    except ConfigError:  # told by whoever asks: it reads the same file
        return {}


def _model(spec: ModelSpec) -> dict[str, Any]:
    return {"refused": _refused(spec), "class": _class_trouble(spec.pipeline_class), "loras": _lora_troubles(spec)}


def _refused(spec: ModelSpec) -> str | None:
    try:
        engine_config(spec)
    except ConfigError as error:
        return str(error).removeprefix(f"model {spec.name}: ")
    return None


def _class_trouble(name: str | None) -> str | None:
    """For a dotted path alone: it is imported, as the worker does."""
    if name is None or "." not in name:
        return None
    if not _has_module(name.rpartition(".")[0]):
        return f"pipeline_class {name}: there is no such module"
    from engine.adapters.loading import resolve_class  # takes seconds

    try:
        resolve_class(name)
    except Exception as error:  # of the module's own code, too
        return str(error)
    return None


def _has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _lora_troubles(spec: ModelSpec) -> Mapping[str, str]:
    """Adapters that cannot be had; those of the hub only as far as the cache tells."""
    from engine.adapters.lora_files import lora_file

    troubles = {}
    for name, source in spec.loras.items():
        try:
            lora_file(source, allow_pickle=spec.allow_pickle, local_files_only=True)
        except Exception as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            troubles[name] = lines[0] if lines else type(error).__name__
    return troubles


if __name__ == "__main__":
    sys.exit(main())

"""What torch and its devices mean for a worker on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tasks.doctor.finding import Finding, fail, ok, size, skipped, warn
from tasks.doctor.probe.worker import INSTALL

_CUDA_BUILD = "install torch's CUDA build: make TORCH=cuda, or pip install torch from PyPI or PyTorch's own index"
_LITTLE = 0.1


def judge_device(facts: Mapping[str, Any] | str) -> Iterator[Finding]:
    if isinstance(facts, str):
        finding = skipped("device.torch", facts) if "not installed" in facts else None
        yield finding or fail("device.torch", facts, f"look at it, then reinstall: {INSTALL}")
        return
    packages: Mapping[str, str | None] = facts["packages"]
    if broken := facts.get("broken"):
        yield fail("device.torch", f"torch cannot be imported: {broken}", f"reinstall: {INSTALL}")
        return
    yield _packages(packages, facts)
    yield _cuda(facts)
    for card in facts["cuda_devices"]:
        yield from _card(card)


def _packages(packages: Mapping[str, str | None], facts: Mapping[str, Any]) -> Finding:
    missing = [name for name, version in packages.items() if version is None]
    if missing:
        return fail("device.torch", f"not installed: {', '.join(missing)}", INSTALL)
    build = f"CUDA {facts['cuda_build']}" if facts["cuda_build"] else "no CUDA"
    return ok("device.torch", f"torch {packages['torch']} ({build}), diffusers {packages['diffusers']}")


def _cuda(facts: Mapping[str, Any]) -> Finding:
    check, driver, build = "device.cuda", facts["driver"], facts["cuda_build"]
    cards, visible = facts["cuda_devices"], facts["cuda_visible"]
    if cards:
        return ok(check, f"{len(cards)} visible, NVIDIA driver {driver or 'unknown'}")
    if driver and not build:
        return fail(check, f"this machine has NVIDIA's driver {driver}, and torch is a build without CUDA", _CUDA_BUILD)
    if build and driver and visible is not None and visible.strip() in ("", "-1"):
        return fail(check, f"CUDA_VISIBLE_DEVICES is {visible!r}: no GPU is visible", "unset CUDA_VISIBLE_DEVICES")
    if build and driver:
        trouble = facts.get("cuda_trouble") or "torch finds no device"
        return fail(check, f"{trouble} (NVIDIA driver {driver}, torch for CUDA {build})", _DRIVER)
    if facts["has_mps"]:
        return ok(check, "none; Apple's GPU (mps) is there")
    return ok(
        check, f"none; models run on the CPU with {facts['num_threads']} thread{'s' * (facts['num_threads'] != 1)}"
    )


_DRIVER = "update NVIDIA's driver, or install a torch for an older CUDA; in a container: --gpus all"


def _card(card: Mapping[str, Any]) -> Iterator[Finding]:
    index = card["index"]
    if "broken" in card:
        yield fail(f"device.cuda:{index}", card["broken"], "look at nvidia-smi; a reset or a reboot may be needed")
        return
    free, total = card["free_bytes"], card["total_bytes"]
    bf16 = "bfloat16" if card["has_bf16"] else "no bfloat16 (models run in float16)"
    found = f"{card['name']}, {size(free)} of {size(total)} free, {bf16}"
    if free < _LITTLE * total:
        yield warn(f"device.cuda:{index}", found, "well if a worker holds it already; else end what does (nvidia-smi)")
    else:
        yield ok(f"device.cuda:{index}", found)

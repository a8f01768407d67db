"""How much of a models file this node takes on, as plain numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from engine import EngineConfig
from tasks.errors import ConfigError
from tasks.models import Models, ModelSpec

#: Threads for `safelight.submit`, which must not wait behind jobs.
SUBMIT_SLOTS = 2
_WAVE_PART = 2 / 3


def served(models: Models, names: Sequence[str]) -> tuple[ModelSpec, ...]:
    """The specs of the named models, or all. Raises `ConfigError` for a name that the file does not have."""
    for name in names:
        if models.get(name) is None:
            raise ConfigError(f"--model {name}: not in the models file; it has {', '.join(models.names)}")
    return tuple(spec for spec in models if not names or spec.name in names)


def num_places(specs: Sequence[ModelSpec], look_ahead_rows: int) -> int:
    """Jobs in flight: a full batch for each device, and as many more as may load, wait or upload meanwhile."""
    return sum(spec.max_batch_rows * spec.num_ranks for spec in specs) + look_ahead_rows


def num_slots(specs: Sequence[ModelSpec], look_ahead_rows: int) -> int:
    """Deliveries in flight: one for each place, and the threads for `safelight.submit`."""
    return num_places(specs, look_ahead_rows) + SUBMIT_SLOTS


def engine_config(spec: ModelSpec, stall_s: float = 900.0) -> EngineConfig:
    """Raises `ConfigError` for what the engine refuses.

    A rank that hangs is replaced before the worker counts as hung, which it does after `stall_s`.
    """
    try:
        return _engine_config(spec, wave_deadline_s=_WAVE_PART * stall_s)
    except ValueError as error:
        raise ConfigError(f"model {spec.name}: {error}") from None


def _engine_config(spec: ModelSpec, wave_deadline_s: float) -> EngineConfig:
    return EngineConfig(
        model=spec.source,
        revision=spec.revision,
        dtype=spec.dtype,
        device=spec.device,
        executor=spec.executor,
        devices=spec.devices,
        parallel=spec.parallel,
        wave_deadline_s=wave_deadline_s,
        mode=spec.mode,
        max_batch_rows=spec.max_batch_rows,
        admission_wait_ms=spec.admission_wait_ms,
        offload=None if spec.offload == "none" else spec.offload,
        compile=spec.compile,
        pipeline_class=spec.pipeline_class,
        allow_pickle=spec.allow_pickle,
        loras=spec.loras,
        max_loras=spec.max_loras,
        vae_tiling=spec.vae_tiling,
        vae_slicing=spec.vae_slicing,
        attention_backend=spec.attention_backend,
        prompt_cache_mb=spec.prompt_cache_mb,
    )

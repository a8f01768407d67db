"""From an EngineConfig to a diffusers pipeline in memory, on its device. Every failure becomes one ModelLoadError."""

import importlib
import logging
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers

from ..config import EngineConfig
from ..errors import ModelLoadError
from .pipeline_options import OptionRefused, apply_options
from .step_safety import denoisers_of

log = logging.getLogger(__name__)

BUNDLED = "bundled:"
MODELS = Path(__file__).parent.parent / "models"


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    """A `diffusers.DiffusionPipeline` with its weights on `device`, or offloaded from it, in `dtype`."""

    pipeline: Any
    device: torch.device
    dtype: torch.dtype


def load_pipeline(config: EngineConfig) -> LoadedPipeline:
    """Raises ModelLoadError that says which model, why, and what to try. Weights are safetensors unless allowed."""
    _silence_libraries()
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    try:
        device = resolve_device(config.devices[0] if config.parallel else config.device)
        dtype = resolve_dtype(config.dtype, device)
        pipeline = _read(config, dtype)
        apply_options(pipeline, config)
        _place(pipeline, device, config)
    except Exception as error:
        raise ModelLoadError(_explain(config, error)) from error
    log.info("loaded %s as %s on %s in %s", config.model, type(pipeline).__name__, device, dtype)
    return LoadedPipeline(pipeline, device, dtype)


def read_denoisers(config: EngineConfig) -> dict[str, torch.nn.Module]:
    """Of the model, and nothing else of it, on the CPU. Raises what the libraries raise."""
    _silence_libraries()
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    pipeline = _read(config, resolve_dtype(config.dtype, resolve_device(config.device)))
    apply_options(pipeline, replace(config, vae_tiling=False, vae_slicing=False))
    return denoisers_of(pipeline)


def resolve_source(model: str) -> str:
    """A path or hub id. Raises ValueError for a bundled model that does not exist or a path that leads nowhere."""
    if model.startswith(BUNDLED):
        path = MODELS / model.removeprefix(BUNDLED)
    elif model.startswith(("/", "./", "../", "~")):
        path = Path(model).expanduser()
    else:
        return model
    if not path.is_dir():
        raise ValueError(f"there is no folder {path}")
    return str(path)


def resolve_device(name: str) -> torch.device:
    """`auto` is CUDA, else MPS, else the CPU. Raises RuntimeError for a device that is not there."""
    if name != "auto":
        device = torch.device(name)
        torch.empty(1, device=device)
        return device
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is float32 on the CPU, bfloat16 on CUDA where it has it, else float16."""
    named = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name != "auto":
        return named[name]
    if device.type == "cpu":
        return torch.float32
    has_bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if has_bfloat16 else torch.float16


def resolve_class(wanted: str | type | None) -> Any:
    """A class of diffusers by name, any other by dotted path or as it is; for None the one that the model names itself.

    Raises ValueError when there is none of that name, TypeError when it is no pipeline.
    """
    if wanted is None:
        return diffusers.DiffusionPipeline
    found = _imported(wanted) if isinstance(wanted, str) else wanted
    if not (isinstance(found, type) and issubclass(found, diffusers.DiffusionPipeline)):
        raise TypeError(f"pipeline_class {wanted} is no diffusers pipeline")
    return found


def _imported(name: str) -> Any:
    module_name, _, class_name = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module_name or "diffusers"), class_name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"pipeline_class {name} cannot be found: {error}") from error


def _read(config: EngineConfig, dtype: torch.dtype) -> Any:
    pipeline_class, source = resolve_class(config.pipeline_class), resolve_source(config.model)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", FutureWarning
        )  # newer releases say dtype, but older ones know torch_dtype alone
        return pipeline_class.from_pretrained(
            source,
            revision=config.revision,
            torch_dtype=dtype,
            use_safetensors=None if config.allow_pickle else True,
            trust_remote_code=False,  # code that comes with weights is never run, whatever a library's default becomes
            local_files_only=config.local_files_only or config.model.startswith(BUNDLED),
        )


def _place(pipeline: Any, device: torch.device, config: EngineConfig) -> None:
    pipeline.set_progress_bar_config(disable=True)
    if config.offload == "model":
        pipeline.enable_model_cpu_offload(device=device)
    elif config.offload == "sequential":
        pipeline.enable_sequential_cpu_offload(device=device)
    elif config.parallel in ("tensor", "shard"):  # the denoisers come part by part, when they are divided
        for name, component in pipeline.components.items():
            if isinstance(component, torch.nn.Module) and name not in denoisers_of(pipeline):
                component.to(device)
    else:
        pipeline.to(device)


def _explain(config: EngineConfig, error: Exception) -> str:
    cause = next((line for line in str(error).splitlines() if line.strip()), "no message")
    return f"cannot load {config.model}: {type(error).__name__}: {cause} Try: {_advice(config, error)}."


def _advice(config: EngineConfig, error: Exception) -> str:
    if isinstance(error, OptionRefused):
        return "an entry without it"
    if isinstance(error, torch.OutOfMemoryError):
        return "offload='model', or a smaller dtype"
    if "safetensors" in str(error) and not config.allow_pickle:
        return "a repository with safetensors, or allow_pickle=True if you trust its author with your machine"
    if config.local_files_only:
        return "local_files_only=False, or download the model first"
    if isinstance(error, OSError):
        return "the right model id and revision, a network, HF_TOKEN for a gated model"
    return "checking model, pipeline_class, device and dtype"


def _silence_libraries() -> None:
    """Their logs speak of things that the operator did not choose; ours tells what matters."""
    diffusers.utils.logging.set_verbosity_error()
    diffusers.utils.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

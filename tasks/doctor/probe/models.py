"""Facts of a model's files, read without torch: where they are, what they hold, how large they are in memory."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tasks.models import ModelSpec

Where = Literal["bundled", "folder", "cache", "hub", "nowhere", "fake"]
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_MAX_HEADER_BYTES = 64 * 1024 * 1024
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
#: `model.fp16.safetensors` is a second copy, which is loaded by name only.
_VARIANT = re.compile(r"\.(fp16|fp32|bf16|ema|non_ema)[.-]")


@dataclass(frozen=True, slots=True)
class Component:
    """One folder of a pipeline that holds weights."""

    name: str
    num_params: int = 0
    pickled: Sequence[str] = ()
    has_safetensors: bool = False
    #: Shards that an index names and that are not there, files of Git LFS that were never pulled, damaged headers.
    broken: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ModelFacts:
    where: Where
    place: str
    class_name: str | None = None
    components: Sequence[Component] = ()
    #: Without a `model_index.json` a folder is no pipeline.
    has_index: bool = True


def look_at(spec: ModelSpec, env: Mapping[str, str] | None = None) -> ModelFacts:
    env = os.environ if env is None else env
    if spec.source.startswith("fake:"):
        return ModelFacts("fake", spec.source)
    where, folder, place = _find(spec, env)
    if folder is None:
        return ModelFacts(where, place)
    index = _index(folder)
    if index is None:
        return ModelFacts(where, place, has_index=False)
    names = [name for name, value in index.items() if isinstance(value, list) and value and value[0]]
    components = tuple(found for name in names if (found := _component(folder / name)) is not None)
    return ModelFacts(where, place, spec.pipeline_class or index.get("_class_name"), components)


def _find(spec: ModelSpec, env: Mapping[str, str]) -> tuple[Where, Path | None, str]:
    source = spec.source
    if source.startswith("bundled:"):
        engine = importlib.util.find_spec("engine")
        roots = list(engine.submodule_search_locations or ()) if engine else []
        folder = Path(roots[0] if roots else ".") / "models" / source.removeprefix("bundled:")
        return ("bundled", folder, source) if folder.is_dir() else ("nowhere", None, source)
    if source.startswith(("/", "./", "../", "~")):
        folder = Path(source).expanduser()
        return ("folder", folder, str(folder)) if folder.is_dir() else ("nowhere", None, str(folder))
    if not _HUB_ID.fullmatch(source):
        return "nowhere", None, source
    snapshot = _cached(source, spec.revision or "main", env)
    return ("cache", snapshot, source) if snapshot else ("hub", None, source)


def hub_cache(env: Mapping[str, str]) -> Path:
    """As huggingface_hub decides it."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if env.get(name):
            return Path(env[name]).expanduser()
    home = env.get("HF_HOME") or f"{env.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return Path(home).expanduser() / "hub"


def _cached(repo: str, revision: str, env: Mapping[str, str]) -> Path | None:
    root = hub_cache(env) / f"models--{repo.replace('/', '--')}"
    reference = root / "refs" / revision
    try:
        commit = reference.read_text("utf-8").strip() if reference.is_file() else revision
    except OSError:
        return None
    snapshot = root / "snapshots" / commit
    return snapshot if (snapshot / "model_index.json").is_file() else None


def _index(folder: Path) -> Mapping[str, Any] | None:
    try:
        index = json.loads((folder / "model_index.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return index if isinstance(index, dict) else None


def _component(folder: Path) -> Component | None:
    """None for one without weights: a tokenizer, a noise scheduler."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    tensors = [file for file in files if file.suffix == ".safetensors" and not _VARIANT.search(file.name)]
    pickled = [file.name for file in files if file.suffix in _PICKLED and not _VARIANT.search(file.name)]
    missing = list(_missing_shards(files))
    if not (tensors or pickled or missing):
        return None
    num_params, broken = 0, missing
    for file in tensors:
        count = _count_params(file)
        num_params += count or 0
        broken += [] if count is not None else [file.name]
    return Component(folder.name, num_params, pickled, bool(tensors or missing), broken)


def _missing_shards(files: Sequence[Path]) -> Iterator[str]:
    for index in (file for file in files if file.name.endswith(".safetensors.index.json")):
        if _VARIANT.search(index.name):
            continue
        try:
            shards = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        except (OSError, ValueError, KeyError, AttributeError):
            yield index.name
            continue
        yield from sorted(name for name in shards if not (index.parent / name).exists())


def _count_params(file: Path) -> int | None:
    """From the header of a safetensors file (8 bytes of length, then JSON); None if it is none, or is cut off."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > _MAX_HEADER_BYTES:
                return None
            tensors = json.loads(stream.read(length))
            tensors.pop("__metadata__", None)
            ends = [tensor["data_offsets"][1] for tensor in tensors.values()]
            if file.stat().st_size < 8 + length + max(ends, default=0):
                return None
            return sum(_product(tensor["shape"]) for tensor in tensors.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _product(shape: Sequence[int]) -> int:
    product = 1
    for side in shape:
        product *= side
    return product

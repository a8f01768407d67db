"""A models file with every fault that a worker would only meet when it loads, and one good table, `tiny`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import engine

TINY = Path(engine.__file__).parent / "models/tiny"


def pipeline(folder: Path, **changes: str) -> Path:
    """A copy of the bundled model's folder, with links instead of copies of its weights."""
    shutil.copytree(TINY, folder, copy_function=lambda source, to: Path(to).symlink_to(source))
    index = json.loads((TINY / "model_index.json").read_text("utf-8"))
    (folder / "model_index.json").unlink()
    (folder / "model_index.json").write_text(json.dumps(index | changes), "utf-8")
    return folder


def cut_off(folder: Path) -> Path:
    weights = pipeline(folder) / "vae/diffusion_pytorch_model.safetensors"
    whole = weights.read_bytes()
    weights.unlink()
    weights.write_bytes(whole[: len(whole) // 2])
    return folder


def of_git_lfs(folder: Path) -> Path:
    weights = pipeline(folder) / "unet/diffusion_pytorch_model.safetensors"
    weights.unlink()
    weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "utf-8")
    return folder


def pickled(folder: Path) -> Path:
    weights = pipeline(folder) / "unet/diffusion_pytorch_model.safetensors"
    weights.rename(weights.with_suffix(".bin"))
    return folder


def cached(cache: Path) -> None:
    """`somebody/painter` as huggingface_hub keeps it."""
    root = cache / "models--somebody--painter"
    (root / "refs").mkdir(parents=True)
    (root / "refs/main").write_text("c0ffee", "utf-8")
    (root / "snapshots").mkdir()
    pipeline(root / "snapshots/c0ffee")


@dataclass(frozen=True)
class BadModels:
    folder: Path
    #: The variables that name it.
    env: Mapping[str, str]
    facts: Mapping[str, Any]


def write_bad_models(folder: Path) -> Mapping[str, str]:
    """The variables that name it."""
    cached(folder / "cache")
    (folder / "plain").mkdir()
    sources = {
        "tiny": 'source = "bundled:tiny"',
        "hub": 'source = "somebody/painter"',
        "offline": 'source = "somebody/else"\ndevice = "cuda:9"',
        "typo": f'source = "{folder}/no-such-folder"',
        "nothing": 'source = "painter"',
        "plain": f'source = "{folder}/plain"',
        "cut": f'source = "{cut_off(folder / "cut")}"',
        "lfs": f'source = "{of_git_lfs(folder / "lfs")}"',
        "pickled": f'source = "{pickled(folder / "pickled")}"',
        "trusted": f'source = "{folder / "pickled"}"\nallow_pickle = true',
        "future": f'source = "{pipeline(folder / "future", _class_name="PipelineOfTomorrow")}"',
        "dotted": 'source = "bundled:tiny"\npipeline_class = "no.such.Thing"',
        "gpu": 'source = "bundled:tiny"\ndevice = "cuda:7"',
        "lora": f'source = "bundled:tiny"\nloras = {{ ink = "{folder}/ink.safetensors" }}',
        "compiled": 'source = "bundled:tiny"\ncompile = true\nloras = { ink = "a/b/ink.safetensors" }',
        "sampler": 'source = "bundled:tiny"\nnoise_schedulers = ["euler", "eular"]',
    }
    models = folder / "models.toml"
    models.write_text("".join(f"[{name}]\n{text}\n" for name, text in sources.items()), "utf-8")
    return {"SAFELIGHT_MODELS": str(models), "HF_HUB_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}

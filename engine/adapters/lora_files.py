"""From the source of a LoRA to one weights file on this machine. Knows names and headers, reads no weights."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import huggingface_hub
from safetensors import safe_open

#: as diffusers and PEFT save them
USUAL_NAMES = ("pytorch_lora_weights.safetensors", "adapter_model.safetensors")
PICKLED = (".bin", ".pt", ".pth")
HUB_ID = re.compile(r"(?P<repo>[^/]+/[^/]+)(/(?P<file>.+))?")

#: Entries of a "control LoRA", which takes the place of the model's own norms instead of being added to them.
REPLACED = re.compile(r"(norm_(q|k|added_q|added_k)\.|(query|key)_norm\.)")


def lora_file(source: str, *, allow_pickle: bool, local_files_only: bool) -> Path:
    """A file stands for itself, a folder or a hub id for the one weights file in it; `owner/name/file` names one.

    Raises ValueError, OSError, or what the hub raises.
    """
    endings = (".safetensors", *PICKLED) if allow_pickle else (".safetensors",)
    if source.startswith(("/", "./", "../", "~")):
        path = Path(source).expanduser()
        if not path.exists():
            raise ValueError(f"there is no file {path}")
        if path.is_dir():
            path /= _choose((one.name for one in path.iterdir()), endings, str(path))
        _require_ending(path.name, endings)
        return path
    wanted = HUB_ID.fullmatch(source)
    if wanted is None:
        raise ValueError(f"{source} is no path (/…, ./…, ~/…) and no hub id (owner/name)")
    name = wanted["file"] or _name_on_hub(wanted["repo"], endings, local_files_only=local_files_only)
    _require_ending(name, endings)
    found = huggingface_hub.hf_hub_download(  # nosec B615 # safetensors: a changed file changes pictures, runs nothing
        wanted["repo"], name, local_files_only=local_files_only
    )
    return Path(found)


def require_additive(file: Path, module: Callable[[str], Any]) -> None:
    """Raises ValueError for a file that would change the model itself and not only add to it.

    `module` finds a module of the model by the name that an entry begins with, None for none.
    """
    if file.suffix != ".safetensors":
        return
    with safe_open(file, framework="pt") as entries:
        for key in entries.keys():  # noqa: SIM118 (it is no mapping)
            if REPLACED.search(key) and "lora" not in key:
                raise ValueError("it replaces weights of the model itself (a control LoRA); these cannot be served")
            target, is_down, _ = key.partition(".lora_A.")
            found = module(target) if is_down else None
            rows = getattr(found, "in_features", None)
            if rows is not None and entries.get_slice(key).get_shape()[1] > rows:
                raise ValueError(f"{target} of the model has {rows} inputs, and this was trained for more")


def _choose(names: Iterable[str], endings: tuple[str, ...], place: str) -> str:
    found = sorted(name for name in names if name.endswith(endings) and "/" not in name)
    usual = [name for name in USUAL_NAMES if name in found]
    if usual:
        return usual[0]
    if len(found) != 1:
        listed = ", ".join(found[:8]) or "none"
        raise ValueError(f"{place} should have one file that ends in {' or '.join(endings)}; it has {listed}")
    return found[0]


def _name_on_hub(repo: str, endings: tuple[str, ...], *, local_files_only: bool) -> str:
    return USUAL_NAMES[0] if local_files_only else _choose(huggingface_hub.list_repo_files(repo), endings, repo)


def _require_ending(name: str, endings: tuple[str, ...]) -> None:
    if not name.endswith(endings):
        advice = "allow_pickle serves others, if you trust their author with your machine"
        raise ValueError(f"{name} does not end in .safetensors ({advice})")

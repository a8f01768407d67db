"""What a models file and the files behind it mean for a worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tasks.doctor.finding import Finding, fail, ok, size, skipped, warn
from tasks.doctor.probe.models import Component, ModelFacts
from tasks.model_room import MIB, Need, misfit
from tasks.models import ModelSpec

_TRUE = ("1", "on", "true", "yes")
_NEARLY_FULL = 0.85


def judge_file(error: str | None, path: str | None, names: Sequence[str]) -> Finding:
    if error is not None:
        entry, colon, _ = error.partition(": ")
        if entry == "SAFELIGHT_MODELS":  # the file, and nothing in it
            return fail("models.file", error, "correct SAFELIGHT_MODELS, or unset it for the bundled model")
        return fail("models.file", error, "correct this entry" if colon else f"correct {entry}")
    listed = ", ".join(names)
    if path is None:
        return ok("models.file", f"SAFELIGHT_MODELS is unset: the bundled model, {listed}")
    return ok("models.file", f"{path}: {listed}")


def judge_model(
    spec: ModelSpec, facts: ModelFacts, worker: Mapping[str, Any] | str, env: Mapping[str, str]
) -> Iterator[Finding]:
    """Without torch on this machine (`worker` is the sentence that says so) a worker elsewhere may have the files."""
    yield _source(spec, facts, env, is_worker=not isinstance(worker, str))
    if facts.has_index and facts.where in ("bundled", "folder", "cache"):
        yield _weights(spec, facts)
    if facts.where in ("fake", "nowhere"):
        return
    if isinstance(worker, str):
        yield skipped(f"models.{spec.name}.engine", worker)
        return
    yield _pipeline(spec, facts, worker)
    yield _entry(spec, worker)
    yield _dtype(spec, worker)
    if facts.components:
        yield _memory(spec, facts, worker)
    if spec.loras:
        yield _loras(spec, worker)


def _source(spec: ModelSpec, facts: ModelFacts, env: Mapping[str, str], *, is_worker: bool) -> Finding:
    check = f"models.{spec.name}.source"
    match facts.where:
        case "nowhere":
            is_path = facts.place.startswith(("/", "."))
            found = f"there is no folder {facts.place}" if is_path else f"{facts.place!r} is no path and no hub id"
            remedy = f"correct source in [{spec.name}]: a folder as /… or ./…, or OWNER/NAME of the hub"
            if is_path and not is_worker:
                return skipped(check, f"{found} on this machine")
            return fail(check, found, remedy)
        case "hub" if env.get("HF_HUB_OFFLINE", "").lower() in _TRUE:
            found = f"{facts.place} is not in the cache, and HF_HUB_OFFLINE keeps it from being downloaded"
            remedy = f"unset HF_HUB_OFFLINE for one start, or run: hf download {facts.place}"
            return fail(check, found, remedy) if is_worker else skipped(check, f"{found} (on this machine)")
        case "hub":
            if not is_worker:
                return skipped(check, f"{facts.place} is looked for on the workers' machines")
            found = f"{facts.place} is not in the cache: the first start downloads it"
            return warn(check, found, f"to have it before: hf download {facts.place}")
    if not facts.has_index:
        remedy = f"point source in [{spec.name}] at a folder in diffusers' format"
        return fail(check, f"{facts.place} has no model_index.json: it is no pipeline", remedy)
    return ok(check, {"bundled": "comes with the package"}.get(facts.where, f"{facts.place} ({facts.where})"))


def _weights(spec: ModelSpec, facts: ModelFacts) -> Finding:
    check = f"models.{spec.name}.weights"
    broken = [f"{part.name}/{name}" for part in facts.components for name in part.broken]
    if broken:
        found = f"missing, cut off, or a pointer of Git LFS: {', '.join(broken[:3])}"
        return fail(check, found, "download it again (hf download, or git lfs pull)")
    pickled = [part for part in facts.components if part.pickled and not part.has_safetensors]
    if pickled and not spec.allow_pickle:
        found = f"{pickled[0].name} has pickled weights only ({pickled[0].pickled[0]}), which run code when they load"
        remedy = f"take a source with safetensors, or set allow_pickle = true in [{spec.name}] if you trust its author"
        return fail(check, found, remedy)
    if not facts.components:
        return warn(check, "no weights were found", f"check source in [{spec.name}]")
    return ok(check, f"{_params(facts.components)} parameters, {'pickled' if pickled else 'safetensors'}")


def _params(components: Sequence[Component]) -> str:
    number = sum(part.num_params for part in components)
    return f"{number / 1e9:.1f} billion" if number >= 1e9 else f"{number / 1e6:.1f} million"


def _pipeline(spec: ModelSpec, facts: ModelFacts, worker: Mapping[str, Any]) -> Finding:
    check, name = f"models.{spec.name}.pipeline", facts.class_name or spec.pipeline_class
    if trouble := _of_model(spec, worker).get("class"):
        return fail(check, trouble, f"correct pipeline_class in [{spec.name}]")
    if name is None:
        return skipped(check, "the model itself says which, once it is here")
    if "." not in name and name not in worker.get("classes", ()):
        version = worker.get("packages", {}).get("diffusers")
        found = f"diffusers {version} has no class {name}"
        return fail(check, found, f"upgrade diffusers, or set pipeline_class in [{spec.name}]")
    return ok(check, name)


def _entry(spec: ModelSpec, worker: Mapping[str, Any]) -> Finding:
    """What the models file may say, and the engine refuses or does not know."""
    check = f"models.{spec.name}.entry"
    if refused := _of_model(spec, worker).get("refused"):
        return fail(check, refused, f"correct [{spec.name}]")
    known = {*worker.get("noise_schedulers", {}), *worker.get("classes", ())}
    if unknown := [name for name in spec.noise_schedulers if name not in known]:
        short = ", ".join(worker.get("noise_schedulers", {}))
        return fail(check, f"no noise scheduler is called {unknown[0]}", f"noise_schedulers in [{spec.name}]: {short}")
    return ok(check, f"limits fit the defaults, {spec.defaults.width}×{spec.defaults.height}")


def _dtype(spec: ModelSpec, worker: Mapping[str, Any]) -> Finding:
    check = f"models.{spec.name}.device"
    device, dtype = device_of(spec, worker), dtype_of(spec, worker)
    cards = {card["index"]: card for card in worker.get("cuda_devices", ()) if "broken" not in card}
    missing = [one for one in spec.devices or (device,) if one.startswith("cuda") and _index(one) not in cards]
    if missing:
        named = missing[0] if spec.devices else spec.device
        found = f"device = {named!r}, and torch sees {len(cards) or 'no'} CUDA device{'s' * (len(cards) != 1)}"
        return fail(check, found, f'set device = "auto" in [{spec.name}], or see the check device.cuda')
    if device == "mps" and not worker.get("has_mps"):
        return fail(check, "device = 'mps', which is not there", f'set device = "auto" in [{spec.name}]')
    if device == "cpu" and dtype == "float16":
        return warn(check, "float16 on a CPU is slow, and parts lack it", f'set dtype = "auto" in [{spec.name}]')
    if dtype == "bfloat16" and device.startswith("cuda") and not cards[_index(device)]["has_bf16"]:
        found = f"{cards[_index(device)]['name']} has no bfloat16 and emulates it slowly"
        return warn(check, found, f'set dtype = "float16" in [{spec.name}]')
    return ok(check, f"{dtype} on {', '.join(spec.devices) or device}")


def device_of(spec: ModelSpec, worker: Mapping[str, Any]) -> str:
    """The first of several, which are taken for equal."""
    if spec.devices:
        return spec.devices[0]
    if spec.device != "auto":
        return spec.device
    return "cuda" if worker.get("cuda_devices") else "mps" if worker.get("has_mps") else "cpu"


def dtype_of(spec: ModelSpec, worker: Mapping[str, Any]) -> str:
    device = device_of(spec, worker)
    if spec.dtype != "auto" or device == "cpu":
        return spec.dtype if spec.dtype != "auto" else "float32"
    cards = worker.get("cuda_devices", ())
    return "bfloat16" if device.startswith("cuda") and cards and cards[0].get("has_bf16") else "float16"


def weight_bytes(spec: ModelSpec, facts: ModelFacts, worker: Mapping[str, Any]) -> int:
    """What has to be on the device at a time."""
    each = 4 if dtype_of(spec, worker) == "float32" else 2
    sizes = [part.num_params * each for part in facts.components]
    if spec.offload == "sequential":
        return 0
    return max(sizes, default=0) if spec.offload == "model" else sum(sizes)


def needed_bytes(spec: ModelSpec, facts: ModelFacts, worker: Mapping[str, Any]) -> int:
    """What a worker reckons with before it has loaded the model: what the entry states, else weights and some room."""
    if spec.memory_mb is not None:
        return spec.memory_mb * MIB
    return round(weight_bytes(spec, facts, worker) / _NEARLY_FULL)


def _memory(spec: ModelSpec, facts: ModelFacts, worker: Mapping[str, Any]) -> Finding:
    check, device = f"models.{spec.name}.memory", device_of(spec, worker)
    wanted, (free, total) = weight_bytes(spec, facts, worker), room(device, worker)
    if not total or not wanted:
        return skipped(check, f"{size(wanted)} of weights, and nobody says how much memory {device} has")
    remedy = f'offload = "model" or a smaller dtype in [{spec.name}], or a larger device'
    if wanted > total:
        return fail(check, f"{size(wanted)} of weights, {device} has {size(total)}", remedy)
    found = f"{size(wanted)} of weights, {size(free)} of {size(total)} free on {device}"
    if wanted > _NEARLY_FULL * free:
        return warn(check, found, f"well if a worker holds it already; else {remedy}")
    return ok(check, found)


def room(device: str, worker: Mapping[str, Any]) -> tuple[int, int]:
    """Free and total bytes; 0, 0 where nobody says."""
    if not device.startswith("cuda"):
        return worker.get("memory_bytes", 0), worker.get("memory_total_bytes", 0)
    for card in worker.get("cuda_devices", ()):
        if card["index"] == _index(device) and "broken" not in card:
            return card["free_bytes"], card["total_bytes"]
    return 0, 0


def judge_together(needs: Sequence[Need], total_bytes: int, device: str, bound_mb: int | None) -> Finding | None:
    """A worker loads every table of the file that fits; the others take turns."""
    check, remedy = "models.together", "give each worker some of them: safelight worker --model NAME"
    bound = total_bytes if bound_mb is None else bound_mb * MIB
    if not bound or (len(needs) < 2 and bound_mb is None):
        return None
    what = device if bound_mb is None else f"SAFELIGHT_MODEL_MEMORY_MB on {device}"
    if trouble := misfit(needs, bound):
        return fail(check, f"{trouble}, {what}", f"{remedy}, raise the bound, or lower memory_mb or keep less")
    wanted = sum(need.bytes for need in needs)
    found = f"{len(needs)} models take about {size(wanted)} together, {what} has {size(bound)}"
    if wanted <= bound:
        return ok(check, found)
    if bound_mb is None and not device.startswith("cuda"):  # nobody measures it there
        return fail(check, found, f"{remedy}, or set SAFELIGHT_MODEL_MEMORY_MB and they take turns")
    return warn(check, f"{found}: they take turns", remedy)


def _loras(spec: ModelSpec, worker: Mapping[str, Any]) -> Finding:
    check, troubles = f"models.{spec.name}.loras", _of_model(spec, worker).get("loras") or {}
    if not troubles:
        return ok(check, ", ".join(spec.loras))
    name, trouble = next(iter(troubles.items()))
    source = spec.loras[name]
    remedy = f"correct {name} of loras in [{spec.name}]"
    if source.startswith(("/", "./", "../", "~")):
        return fail(check, f"{name}: {trouble}", remedy)
    return warn(check, f"{name} ({source}) is not in the cache: {trouble}", f"hf download {source}, or {remedy}")


def _of_model(spec: ModelSpec, worker: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = worker.get("models", {}).get(spec.name, {})
    return found


def _index(device: str) -> int:
    return int(device.partition(":")[2] or 0)

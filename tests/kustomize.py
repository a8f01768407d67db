"""As much of kustomize as `deploy/kubernetes` uses: resources, components, generators, images and JSON patches.

No hashes in generated names and no labels: nothing here depends on them. Anything else in a kustomization is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

Resource = dict[str, Any]
_KNOWN = {
    "apiVersion",
    "kind",
    "namespace",
    "resources",
    "components",
    "labels",
    "configMapGenerator",
    "secretGenerator",
    "images",
    "patches",
}


def build(folder: Path, built: list[Resource] | None = None) -> list[Resource]:
    """The resources of a kustomization, or those given as changed by a component."""
    plan = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    assert plan.keys() <= _KNOWN, f"{folder}: unknown {plan.keys() - _KNOWN}"
    found = built if built is not None else []
    for name in plan.get("resources", ()):
        place = folder / name
        found += build(place) if place.is_dir() else list(yaml.safe_load_all(place.read_text("utf-8")))
    for kind in ("ConfigMap", "Secret"):
        for generator in plan.get(f"{kind[0].lower()}{kind[1:]}Generator", ()):
            _generate(folder, kind, generator, found)
    for name in plan.get("components", ()):
        build(folder / name, found)
    for patch in plan.get("patches", ()):
        _patch(
            patch["target"], yaml.safe_load(patch.get("patch") or (folder / patch["path"]).read_text("utf-8")), found
        )
    for image in plan.get("images", ()):
        _set_image(image, found)
    return found


def containers(resource: Resource) -> list[dict[str, Any]]:
    spec = resource.get("spec", {}).get("template", {}).get("spec", {})
    return spec.get("containers", [])


def _generate(folder: Path, kind: str, generator: dict[str, Any], found: list[Resource]) -> None:
    lines = [line for name in generator.get("envs", ()) for line in (folder / name).read_text("utf-8").splitlines()]
    pairs = [line for line in [*lines, *generator.get("literals", ())] if line and not line.startswith("#")]
    data = dict(pair.split("=", 1) for pair in pairs)
    data |= {name: (folder / name).read_text("utf-8") for name in generator.get("files", ())}
    key = "data" if kind == "ConfigMap" else "stringData"
    known = [r for r in found if r["kind"] == kind and r["metadata"]["name"] == generator["name"]]
    behaviour = generator.get("behavior", "create")
    assert bool(known) == (behaviour != "create"), f"{generator['name']}: {behaviour} of {len(known)}"
    if known:
        known[0][key] = data if behaviour == "replace" else known[0][key] | data
    else:
        found.append({"apiVersion": "v1", "kind": kind, "metadata": {"name": generator["name"]}, key: data})


def _patch(target: dict[str, str], steps: list[dict[str, Any]], found: list[Resource]) -> None:
    met = [r for r in found if r["kind"] == target["kind"] and target.get("name", "") in ("", r["metadata"]["name"])]
    assert met, f"a patch meets nothing: {target}"
    for resource in met:
        for step in steps:
            _step(resource, step)


def _step(resource: Resource, step: dict[str, Any]) -> None:
    """One operation of RFC 6902."""
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:])
    at: Any = resource
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at[part]
    if step["op"] == "add" and last == "-":
        at.append(step["value"])
        return
    key: Any = int(last) if isinstance(at, list) else last
    assert step["op"] == "add" or key in at or isinstance(at, list), f"nothing at {step['path']}"
    if step["op"] == "remove":
        del at[key]
    elif step["op"] == "add" and isinstance(at, list):
        at.insert(key, step["value"])
    else:
        at[key] = step["value"]


def _set_image(image: dict[str, str], found: list[Resource]) -> None:
    for resource in found:
        for container in containers(resource):
            if container["image"] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"

"""The manifests of `deploy/kubernetes`: valid for Kubernetes, and true of the programs that they start."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tasks.metric_catalogue import BY_NAME
from tasks.models import load_models
from tasks.settings import Settings
from tests.kustomize import Resource, build, containers

ROOT = Path(__file__).parents[2]
HOME = ROOT / "deploy/kubernetes"
#: The oldest release of Kubernetes that the manifests are meant for.
RELEASE = "1.32"
OVERLAYS = {name: build(HOME / "overlays" / name) for name in ("cpu", "nvidia")}
FOR_CLUSTERS_OF_YOURS = ("keda-prometheus", "keda-redis", "ingress")
OVERLAYS |= {name: build(HOME / "components" / name, build(HOME / "overlays/nvidia")) for name in FOR_CLUSTERS_OF_YOURS}
SETTINGS = {f"SAFELIGHT_{name.upper()}" for name in Settings.model_fields}
OURS = ("safelight-api", "safelight-worker")
each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


def one(overlay: str, kind: str, name: str) -> Resource:
    (found,) = (r for r in OVERLAYS[overlay] if r["kind"] == kind and r["metadata"]["name"] == name)
    return found


def pod(overlay: str, name: str) -> dict[str, Any]:
    return one(overlay, "Deployment", name)["spec"]["template"]["spec"]


def container(overlay: str, name: str) -> dict[str, Any]:
    return pod(overlay, name)["containers"][0]


def settings_of(overlay: str) -> dict[str, str]:
    return one(overlay, "ConfigMap", "safelight-settings")["data"]


def test_every_resource_is_valid() -> None:
    # Each once: a check reads a megabyte of schema.
    different = {json.dumps(resource): resource for resources in OVERLAYS.values() for resource in resources}
    known = [resource for resource in different.values() if resource["kind"] != "ScaledObject"]
    assert len(known) >= 15
    for resource in known:
        kubernetes_validate.validate(resource, RELEASE, strict=True)


@each_overlay
def test_names_are_told_apart(overlay: str) -> None:
    names = [(resource["kind"], resource["metadata"]["name"]) for resource in OVERLAYS[overlay]]
    assert len(names) == len(set(names))


@each_overlay
def test_selectors_meet_the_labels_of_one_workload(overlay: str) -> None:
    workloads = [r for r in OVERLAYS[overlay] if containers(r)]
    labels = [r["spec"]["template"]["metadata"]["labels"] for r in workloads]
    for resource in OVERLAYS[overlay]:
        spec = resource.get("spec", {})
        selector = spec.get("selector") or spec.get("podSelector") or {}
        wanted = selector.get("matchLabels", {} if "matchExpressions" in selector else selector)
        if wanted:
            assert [wanted.items() <= these.items() for these in labels].count(True) == 1, resource["metadata"]


@each_overlay
def test_what_pods_refer_to_is_there(overlay: str) -> None:
    there = {(r["kind"], r["metadata"]["name"]) for r in OVERLAYS[overlay]} | {("Secret", "safelight")}
    for resource in OVERLAYS[overlay]:
        for container in containers(resource):
            for source in container.get("envFrom", ()):
                assert ("ConfigMap", source["configMapRef"]["name"]) in there
            refs = [v["valueFrom"] for v in container.get("env", ()) if "secretKeyRef" in v.get("valueFrom", {})]
            assert all(("Secret", ref["secretKeyRef"]["name"]) in there for ref in refs)
            volumes = {volume["name"] for volume in resource["spec"]["template"]["spec"].get("volumes", ())}
            claims = {claim["metadata"]["name"] for claim in resource["spec"].get("volumeClaimTemplates", ())}
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes | claims
            ports = {port["name"] for port in container.get("ports", ())}
            probes = [container[name] for name in container if name.endswith("Probe")]
            assert {p["httpGet"]["port"] for p in probes if "httpGet" in p} <= ports


@each_overlay
def test_settings_are_those_of_the_code(overlay: str) -> None:
    named = set(settings_of(overlay))
    for name in OURS:
        named |= {variable["name"] for variable in container(overlay, name)["env"]}
    assert {name for name in named if name.startswith("SAFELIGHT_")} <= SETTINGS
    given = {name.removeprefix("SAFELIGHT_").lower(): value for name, value in settings_of(overlay).items()}
    Settings(**given)


@each_overlay
def test_the_models_file_is_read_from_where_it_is_mounted(overlay: str) -> None:
    path = Path(settings_of(overlay)["SAFELIGHT_MODELS"])
    assert path.name in one(overlay, "ConfigMap", "safelight-models")["data"]
    for name in OURS:
        (mount,) = (m for m in container(overlay, name)["volumeMounts"] if m["name"] == "models")
        assert mount["mountPath"] == str(path.parent)


@pytest.mark.parametrize("path", sorted(HOME.rglob("models.toml")), ids=lambda path: path.parent.name)
def test_the_models_files_are_right(path: Path) -> None:
    assert load_models(path).names
    if path.parent.name == "base":
        assert load_models(path).default == load_models(ROOT / "deploy/models.toml").default


@pytest.mark.parametrize("name", OURS)
@each_overlay
def test_pods_have_no_rights(overlay: str, name: str) -> None:
    spec, only = pod(overlay, name), container(overlay, name)
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 10001
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False, "a service named safelight-… would set SAFELIGHT_* variables"
    assert only["resources"]["requests"].keys() >= {"cpu", "memory"} and "memory" in only["resources"]["limits"]
    writable = {mount["mountPath"] for mount in only["volumeMounts"] if not mount.get("readOnly")}
    assert writable == ({"/tmp"} if name.endswith("api") else {"/tmp", "/cache"})
    assert not re.search(r"(KEY|SECRET|TOKEN|URL)", " ".join(v["name"] for v in only["env"] if "value" in v))


@each_overlay
def test_a_busy_worker_is_not_killed(overlay: str) -> None:
    spec, only = pod(overlay, "safelight-worker"), container(overlay, "safelight-worker")
    grace_s = float(settings_of(overlay)["SAFELIGHT_DRAIN_GRACE_S"])
    assert spec["terminationGracePeriodSeconds"] >= grace_s + 60
    command = only["lifecycle"]["preStop"]["exec"]["command"]
    assert command[-1] == 'safelight drain "$SAFELIGHT_WORKER_NAME" --wait'
    assert any(variable["name"] == "SAFELIGHT_WORKER_NAME" for variable in only["env"])


@each_overlay
def test_probes_and_ports_are_those_of_the_programs(overlay: str) -> None:
    api, worker = (container(overlay, name) for name in OURS)
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    assert [port["containerPort"] for port in api["ports"]] == [int(re.search(r"^EXPOSE (\d+)", dockerfile, re.M)[1])]  # type: ignore[index]
    paths = {api[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    routes = (ROOT / "api_stub/system.py").read_text("utf-8")
    assert paths == {"/healthz", "/readyz"} and all(f'"{path}"' in routes for path in paths)
    script = worker["livenessProbe"]["exec"]["command"][1]
    assert f"COPY deploy/{Path(script).name} ." in dockerfile and "WORKDIR /opt/safelight" in dockerfile


def test_a_gpu_is_asked_for() -> None:
    assert container("nvidia", "safelight-worker")["resources"]["limits"]["nvidia.com/gpu"] == "1"
    cache = next(volume for volume in pod("nvidia", "safelight-worker")["volumes"] if volume["name"] == "cache")
    assert cache["emptyDir"] == {"sizeLimit": "60Gi"}


@pytest.mark.parametrize("overlay", ["keda-prometheus", "keda-redis"])
def test_keda_scales_the_workers_and_owns_their_number(overlay: str) -> None:
    scaled = one(overlay, "ScaledObject", "safelight-worker")["spec"]
    assert "replicas" not in one(overlay, "Deployment", scaled["scaleTargetRef"]["name"])["spec"]
    assert len({trigger["name"] for trigger in scaled["triggers"]}) == len(scaled["triggers"]) == 2
    behaviour = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    (policy,) = behaviour["policies"]
    assert policy["periodSeconds"] >= pod(overlay, "safelight-worker")["terminationGracePeriodSeconds"]


def test_keda_asks_for_metrics_that_there_are() -> None:
    triggers = one("keda-prometheus", "ScaledObject", "safelight-worker")["spec"]["triggers"]
    queries = [trigger["metadata"]["query"] for trigger in triggers]
    named = {name for query in queries for name in re.findall(r"safelight_\w+", query)}
    assert named == {"safelight_jobs", "safelight_queue_oldest_seconds"} <= BY_NAME.keys()


def test_the_health_check_tells_a_worker_from_an_outage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "deploy"), *sys.path])
    from worker_health import main

    monkeypatch.setenv("SAFELIGHT_REDIS_URL", "redis://127.0.0.1:1/0")
    assert main(["--live"]) == 0
    assert main([]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err
    monkeypatch.setenv("SAFELIGHT_LEASE_S", "never")
    assert main(["--live"]) == 1


def test_every_yaml_file_is_used() -> None:
    for plan in HOME.rglob("kustomization.yaml"):
        text = plan.read_text("utf-8")
        assert yaml.safe_load(text)["apiVersion"].startswith("kustomize.config.k8s.io/")
        assert all(file.name in text for file in plan.parent.iterdir() if file != plan)

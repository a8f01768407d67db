"""The containers as they are written down: no root, no capabilities, nothing published but on loopback, no secrets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NAMES = ("worker", "worker-gpu")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_gains_no_rights(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.keys() & {"privileged", "network_mode", "pid", "ipc", "devices", "user"}
    assert not any("docker.sock" in str(volume) for volume in service.get("volumes", ()))
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_images_are_pinned_and_none_was_withdrawn() -> None:
    """Report dandi-archive#2922: minio/minio left Docker Hub in September 2026, and whoever pulled it had no stack."""
    pulled = [service["image"] for service in SERVICES.values() if "build" not in service]
    pulled += re.findall(r"^FROM (\S+:\S+)", (ROOT / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    assert pulled and not any(re.search(r"minio|:latest|:stable", image) for image in pulled)
    assert all(re.search(r":[^/]*\d", image) for image in pulled), pulled


@pytest.mark.parametrize("name", ["api", "worker", "worker-gpu"])
def test_our_own_have_none_and_cannot_write_their_image(name: str) -> None:
    assert SERVICES[name]["read_only"] is True
    assert "cap_add" not in SERVICES[name]


def test_the_images_leave_root_and_hold_no_secret() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    stages = dict(zip(*[iter(re.split(r"^FROM \S+ AS (\S+)$", text, flags=re.MULTILINE)[1:])] * 2, strict=True))
    for stage in ("api", "worker"):
        user = stages[stage].rindex("USER 10001:10001")
        assert user < stages[stage].rindex("CMD [")
    assert not re.search(r"(SECRET|TOKEN|PASSWORD|AWS_|API_KEY)\w*=", text)
    assert "COPY . " not in text, "what lies beside the code stays out"


def test_the_profile_gpu_differs_from_the_worker_in_its_device_alone() -> None:
    own = {"image", "build", "environment", "deploy", "profiles"}
    worker, gpu = ({key: value for key, value in SERVICES[name].items() if key not in own} for name in NAMES)
    assert worker == gpu
    assert SERVICES["worker-gpu"]["profiles"] == ["gpu"] and "profiles" not in SERVICES["worker"]
    added = SERVICES["worker-gpu"]["environment"].keys() ^ SERVICES["worker"]["environment"].keys()
    assert added == {"NVIDIA_DRIVER_CAPABILITIES"}
    override = yaml.safe_load((ROOT / "compose.gpu.yml").read_text("utf-8"))["services"]["worker"]
    assert override["deploy"] == SERVICES["worker-gpu"]["deploy"]

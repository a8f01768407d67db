"""The command as a whole: a healthy set-up, exit codes, what is printed, and what a typo in a variable leads to."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import uvicorn

from api_stub.app import create_app
from tasks import Client
from tasks.artifacts import ArtifactStore
from tasks.cli import main
from tasks.doctor import areas
from tasks.doctor.examine import examine
from tasks.doctor.finding import Finding, ok
from tasks.doctor.scope import Scope
from tasks.local.environment import write_env_file
from tasks.local.process import free_port
from tasks.settings import Settings
from tests.e2e.nodes import eventually
from tests.integration.doctor.conftest import Doctor


@pytest.fixture
def api_url(settings: Settings) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(create_app(settings), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started, 20, "the API is up")
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.mark.usefixtures("probed")
def test_a_healthy_set_up_is_all_ok(doctor: Doctor, settings: Settings, redis_url: str, api_url: str) -> None:
    ArtifactStore(settings).ensure_bucket()
    with Client(settings) as client, redis.Redis.from_url(redis_url) as server:
        client.submit({"prompt": "a boat"})
        client.store.beat("w:1", {"name": "w:1", "state": "ready", "models": {"tiny": {}}}, 60)
        keys = set(server.keys())
        report = doctor("", "--api", api_url)
        assert set(server.keys()) == keys
    assert report.bad == {}
    assert report.code == 0
    assert {each.area for each in report.findings} == {
        "settings", "redis", "broker", "store", "models", "device", "api", "workers"
    }  # fmt: skip
    report.says("api.models", "ok", "tiny")
    report.says("workers.tiny.queue", "ok", "1 queued")


def test_nobody_serves_what_waits(doctor: Doctor, settings: Settings) -> None:
    with Client(settings) as client:
        client.submit({"prompt": "a boat"})
        report = doctor("workers")
        assert report.code == 1
        report.says("workers.alive", "FAIL", "1 job waits", "safelight worker")
        client.store.beat("w:1", {"name": "w:1", "state": "ready", "models": {"sdxl": {}}}, 60)
        doctor("workers").says("workers.tiny.queue", "FAIL", "no worker serves it", "safelight worker --model tiny")


def test_an_api_with_other_models_another_redis_and_a_key(
    doctor: Doctor, settings: Settings, api_url: str, tmp_path: object
) -> None:
    with open(f"{tmp_path}/models.toml", "w") as file:
        file.write('[tiny]\nsource = "bundled:tiny"\n[tiny.limits]\nmax_outputs = 2\n')
    with Client(settings) as client:
        client.store.beat("w:1", {"name": "w:1", "state": "ready", "models": {"tiny": {}}}, 60)
        report = doctor(
            "api", "--api", api_url, SAFELIGHT_MODELS=f"{tmp_path}/models.toml", SAFELIGHT_KEY_PREFIX="other:"
        )
    report.says("api.models", "FAIL", "other ", "of tiny", "SAFELIGHT_MODELS")
    report.says("api.redis", "FAIL", "none in common", "SAFELIGHT_KEY_PREFIX")


def test_an_api_that_is_none(doctor: Doctor, settings: Settings) -> None:
    named = doctor("api", "--api", str(settings.s3_endpoint_url))
    named.says("api.reach", "FAIL", "no Safelight API", "--api")
    named = doctor("api", SAFELIGHT_URL=f"http://127.0.0.1:{free_port()}")
    named.says("api.reach", "FAIL", "nothing answers at http://127.0.0.1:", "correct SAFELIGHT_URL")


def test_the_api_of_the_local_stack_is_found_on_whatever_port(
    doctor: Doctor, settings: Settings, api_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports = {"SAFELIGHT_REDIS_URL": settings.redis_url, "SAFELIGHT_URL": api_url}
    for name in exports:
        monkeypatch.setenv(name, "put back by the fixture")
    (tmp_path / ".local").mkdir()
    write_env_file(tmp_path / ".local/env", exports)
    report = doctor("api", SAFELIGHT_REDIS_URL=None, SAFELIGHT_URL=None)
    report.says("api.reach", "ok", api_url)
    report.says("api.models", "ok", "tiny")


def test_the_usual_address_is_told_with_what_names_another(
    doctor: Doctor, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setattr(areas, "DEFAULT_API_URL", nowhere)
    report = doctor("api", SAFELIGHT_URL=None)
    report.says("api.reach", "skipped", nowhere, "--api URL", "SAFELIGHT_URL")
    assert report.code == 0


def test_a_variable_with_a_typo_and_a_wrong_value(doctor: Doctor) -> None:
    report = doctor("settings", SAFELIGHT_S3_BUKCET="pictures")
    assert report.code == 0
    report.says("settings.names", "warn", "SAFELIGHT_S3_BUKCET is no setting", "rename it to SAFELIGHT_S3_BUCKET")
    report = doctor("redis", SAFELIGHT_RATE_LIMIT="60 a minute")
    report.says("settings.values", "FAIL", "SAFELIGHT_RATE_LIMIT", "60/minute")
    report = doctor("redis", SAFELIGHT_RATE_LIMIT=None, SAFELIGHT_LEASE_S="soon")
    assert report.code == 1
    report.says("settings.values", "FAIL", "SAFELIGHT_LEASE_S", "correct or unset SAFELIGHT_LEASE_S")


def test_an_area_that_is_none_is_usage(doctor: Doctor, capsys: pytest.CaptureFixture[str]) -> None:
    sys.argv = ["safelight", "doctor", "--only", "redis,kitchen"]
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert "--only kitchen: there are settings, redis" in capsys.readouterr().err


def test_what_a_person_reads(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["safelight", "doctor", "--only", "workers,settings"])
    with pytest.raises(SystemExit) as left:
        main()
    lines = capsys.readouterr().out.splitlines()
    assert left.value.code == 0
    assert lines[0] == "settings"
    assert lines[2:] == [
        "workers",
        "  warn    alive         no worker is up",
        "                        → start one: safelight worker",
        "  ok      dead_letters  none",
        "",
        lines[-1],
    ]
    assert lines[-1].startswith("1 warning, 2 ok, in ")


def test_a_fault_or_a_hang_of_one_area_leaves_the_others(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    hang = threading.Event()

    def breaks(scope: Scope) -> Iterator[Finding]:
        yield ok("redis.reach", "fine so far")
        raise ZeroDivisionError("by zero")

    def hangs(scope: Scope) -> Iterator[Finding]:
        hang.wait(30)
        yield ok("store.reach", "too late")

    monkeypatch.setattr("tasks.doctor.examine.AREAS", {**areas.AREAS, "redis": breaks, "store": hangs})
    monkeypatch.setattr("tasks.doctor.examine._TIDY_S", 0.0)
    found = {each.check: each for each in examine(Scope(settings, limit_s=0.01), ["redis", "store"])}
    hang.set()
    assert list(found) == ["redis.reach", "redis.doctor", "store.doctor"]
    assert "ZeroDivisionError: by zero" in found["redis.doctor"].found
    assert "no answer within" in found["store.doctor"].found


def test_an_examination_that_is_left_tidies_up(settings: Settings) -> None:
    artifacts = ArtifactStore(settings)
    artifacts.ensure_bucket()
    with contextlib.closing(examine(Scope(settings), ["store"])) as findings:
        next(each for each in findings if each.check == "store.put")
    assert artifacts.client.list_objects_v2(Bucket=settings.s3_bucket)["KeyCount"] == 0

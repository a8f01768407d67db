"""`safelight doctor` in this process, against real servers that a test may set up badly."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from botocore.loaders import JSONFileLoader

from tasks.cli import main
from tasks.doctor.finding import Finding
from tasks.doctor.probe.worker import WorkerProbe
from tasks.local.servers import RedisServer, start_redis
from tasks.settings import Settings
from tests.integration.doctor.models_files import BadModels, write_bad_models


@dataclass(frozen=True)
class Report:
    code: int
    findings: Sequence[Finding]
    err: str

    def __getitem__(self, check: str) -> Finding:
        return next(each for each in self.findings if each.check == check)

    @property
    def bad(self) -> dict[str, str]:
        """Checks that are not ok, with their status."""
        return {each.check: each.status for each in self.findings if each.status != "ok"}

    def says(self, check: str, status: str, *words: str) -> None:
        """The check has this status, and its two sentences have the words."""
        finding = self[check]
        assert finding.status == status, finding
        text = f"{finding.found} → {finding.remedy}"
        assert all(word in text for word in words), finding
        assert "\n" not in text


Doctor = Callable[..., Report]


@pytest.fixture(scope="session", autouse=True)
def service_models_parsed_once() -> Iterator[None]:
    """boto3 parses megabytes of JSON for each client, and these tests make dozens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", staticmethod(functools.cache(JSONFileLoader().load_file)))
        yield


@pytest.fixture
def doctor(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Doctor:
    """Runs it with the healthy servers in the environment, but for the variables that a call gives; None unsets."""
    for name in ("redis_url", "s3_endpoint_url", "s3_bucket"):
        monkeypatch.setenv(f"SAFELIGHT_{name.upper()}", getattr(settings, name))
    monkeypatch.chdir(tmp_path)

    def call(only: str, *words: str, **env: str | None) -> Report:
        for name, value in env.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["safelight", "doctor", "--json", *(["--only", only] if only else []), *words])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        findings = [Finding(**each) for each in json.loads(captured.out)]
        return Report(int(left.value.code or 0), findings, captured.err)

    return call


@pytest.fixture(scope="session")
def bad_models(tmp_path_factory: pytest.TempPathFactory) -> BadModels:
    """A models file with one fault a table, and what one child process with torch says of it."""
    folder = tmp_path_factory.mktemp("models")
    env = write_bad_models(folder)
    with pytest.MonkeyPatch.context() as patch, WorkerProbe() as probe:
        for name, value in env.items():
            patch.setenv(name, value)
        facts = probe.facts()
    assert not isinstance(facts, str), facts
    return BadModels(folder, env, facts)


@pytest.fixture
def probed(bad_models: BadModels, monkeypatch: pytest.MonkeyPatch) -> BadModels:
    """The doctor takes the facts of `bad_models` instead of starting another child."""
    monkeypatch.setattr(WorkerProbe, "start", lambda self: None)
    monkeypatch.setattr(WorkerProbe, "facts", lambda self: bad_models.facts)
    return bad_models


@pytest.fixture(scope="session")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server for bad settings, apart from the one that all tests share."""
    server = start_redis(tmp_path_factory.mktemp("doctor-redis"))
    yield server
    server.process.stop()


@pytest.fixture
def operator(own_redis: RedisServer) -> Iterator[redis.Redis]:
    """An administrator of `own_redis`; what is configured here is put right again."""
    usual = {"maxmemory-policy": "noeviction", "maxmemory": "0", "appendonly": "yes", "save": ""}
    with redis.Redis(port=own_redis.port, decode_responses=True) as client:
        client.flushall()
        yield client
        for name, value in usual.items():
            client.config_set(name, value)
        client.acl_deluser("worker")
        client.flushall()

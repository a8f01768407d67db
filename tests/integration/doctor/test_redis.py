"""A real Redis, set up badly in the ways that operators know: each names its cause and the setting to change."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from api_stub import serve
from tasks import webhook_queue
from tasks.doctor import areas, rights
from tasks.doctor.scope import Scope
from tasks.errors import ConfigError
from tasks.local.process import free_port
from tasks.local.servers import RedisServer, S3Server
from tasks.redis_store import SCRIPT
from tasks.settings import Settings
from tests.e2e.nodes import fleet
from tests.integration.doctor.conftest import Doctor
from worker.node import Node

#: What a URL reserves, raw.
PASSWORD = "p@:/#[%]é"


@pytest.fixture
def black_hole() -> Iterator[int]:
    """Takes connections and never says a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(16)
        yield server.getsockname()[1]


def test_jobs_that_would_be_evicted(doctor: Doctor, own_redis: RedisServer, operator: redis.Redis) -> None:
    operator.config_set("maxmemory-policy", "allkeys-lru")
    report = doctor("redis", SAFELIGHT_REDIS_URL=own_redis.url)
    assert report.code == 1
    report.says("redis.eviction", "FAIL", "allkeys-lru", "CONFIG SET maxmemory-policy noeviction")
    operator.config_set("maxmemory-policy", "volatile-lru")
    report = doctor("redis", SAFELIGHT_REDIS_URL=own_redis.url)
    assert report.code == 0
    report.says("redis.eviction", "warn", "volatile-lru", "abort", "noeviction")


def test_a_worker_and_the_api_refuse_such_a_redis(
    settings: Settings, own_redis: RedisServer, operator: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    operator.config_set("maxmemory-policy", "allkeys-lru")
    bad = settings.model_copy(update={"redis_url": own_redis.url})
    with pytest.raises(ConfigError, match=r"maxmemory-policy is allkeys-lru.*CONFIG SET maxmemory-policy noeviction"):
        Node(bad).run()
    assert serve(bad, port=0) == 2
    assert "CONFIG SET maxmemory-policy noeviction" in capsys.readouterr().err


def test_nothing_is_written_to_disk(doctor: Doctor, own_redis: RedisServer, operator: redis.Redis) -> None:
    operator.config_set("appendonly", "no")
    report = doctor("redis", SAFELIGHT_REDIS_URL=own_redis.url)
    assert report.code == 0
    report.says("redis.persistence", "warn", "loses every job", "CONFIG SET appendonly yes")
    operator.config_set("save", "3600 1")
    doctor("redis").says("redis.persistence", "warn", "snapshots only", "CONFIG SET appendonly yes")


def test_no_room(doctor: Doctor, own_redis: RedisServer, operator: redis.Redis) -> None:
    operator.config_set("maxmemory", "1mb")
    report = doctor("redis", SAFELIGHT_REDIS_URL=own_redis.url)
    report.says("redis.memory", "FAIL", "of 1.0 MB, maxmemory", "new jobs are refused", "raise maxmemory")
    assert report.bad == {"redis.memory": "FAIL"}  # the rights are known without a write


def test_a_wrong_password_with_reserved_characters(
    doctor: Doctor, own_redis: RedisServer, operator: redis.Redis
) -> None:
    operator.execute_command("ACL", "SETUSER", "worker", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    place = own_redis.url.removeprefix("redis://")
    right = doctor("redis", SAFELIGHT_REDIS_URL=f"redis://worker:{PASSWORD}@{place}")
    assert right.code == 0
    right.says("redis.login", "ok", "user worker, with password")
    wrong = doctor("redis,broker,workers", SAFELIGHT_REDIS_URL=f"redis://worker:{PASSWORD}x@{place}")
    assert wrong.code == 1  # it was reached
    wrong.says("redis.login", "FAIL", "characters that a URL reserves", "write @ as %40", "% as %25")
    assert wrong.bad == {"redis.login": "FAIL", "broker.all": "skipped", "workers.all": "skipped"}
    assert not any(PASSWORD in f"{each.found}{each.remedy}" for each in (*right.findings, *wrong.findings))
    decoded = doctor("redis", SAFELIGHT_REDIS_URL=f"redis://worker:p%40x@{place}")
    decoded.says("redis.login", "FAIL", "what follows a % there was decoded", "%25")


def test_no_password_where_one_is_wanted(doctor: Doctor, own_redis: RedisServer, operator: redis.Redis) -> None:
    operator.execute_command("ACL", "SETUSER", "default", "resetpass", ">geheim")
    try:
        report = doctor("redis", SAFELIGHT_REDIS_URL=own_redis.url)
    finally:
        operator.execute_command("AUTH", "geheim")
        operator.execute_command("ACL", "SETUSER", "default", "nopass")
    report.says(
        "redis.login", "FAIL", "wants a password", f"SAFELIGHT_REDIS_URL=redis://:PASSWORD@127.0.0.1:{own_redis.port}/0"
    )


def test_a_user_who_lacks_one_command(doctor: Doctor, own_redis: RedisServer, operator: redis.Redis) -> None:
    url = f"redis://worker:pw@127.0.0.1:{own_redis.port}/0"
    granted = rights.rule(Settings(redis_url=url), "worker")
    operator.execute_command(f"{granted} on >pw")
    assert doctor("redis,broker", SAFELIGHT_REDIS_URL=url).bad == {"broker.database": "skipped"}  # SCAN is not granted
    operator.execute_command("ACL SETUSER worker -brpop")
    report = doctor("redis,broker", SAFELIGHT_REDIS_URL=url)
    assert report.code == 1
    assert report["redis.rights"].remedy == "ACL SETUSER worker +brpop"
    operator.execute_command(report["redis.rights"].remedy)
    assert doctor("redis").code == 0


def test_a_user_who_lacks_keys_and_the_channel(doctor: Doctor, own_redis: RedisServer, operator: redis.Redis) -> None:
    operator.execute_command("ACL SETUSER worker on >pw ~safelight:* ~safelight.* resetchannels +@all")
    operator.set("safelight:witness", 1)
    report = doctor("redis", SAFELIGHT_REDIS_URL=f"redis://worker:pw@127.0.0.1:{own_redis.port}/0")
    wanted = "ACL SETUSER worker ~unacked* ~_kombu.* ~*.celery.pidbox* &/0.celery.pidbox"
    assert report["redis.rights"].remedy == wanted
    assert operator.keys() == ["safelight:witness"]  # asking has executed nothing


def test_without_transactions_nothing_is_executed(
    doctor: Doctor, own_redis: RedisServer, operator: redis.Redis
) -> None:
    operator.execute_command("ACL SETUSER worker on >pw ~* &* +@all -multi")
    report = doctor("redis", SAFELIGHT_REDIS_URL=f"redis://worker:pw@127.0.0.1:{own_redis.port}/0")
    assert report["redis.rights"].remedy == "ACL SETUSER worker +multi"
    assert operator.keys() == []


def test_the_rights_are_those_that_the_scripts_use(settings: Settings) -> None:
    used = {name.lower() for text in (SCRIPT, webhook_queue._SCRIPT) for name in re.findall(r"call\('([A-Z]+)'", text)}
    asked = {rights.command(need) for need in rights.needs(settings)}
    assert len(used) > 20
    assert used <= asked
    docs = (Path(__file__).parents[3] / "docs/operations.md").read_text("utf-8")
    assert rights.rule(Settings(redis_url="redis://h/0")) in " ".join(docs.split())


def test_a_worker_lives_with_exactly_these_rights(
    settings: Settings, s3_server: S3Server, own_redis: RedisServer, operator: redis.Redis, tmp_path: Path
) -> None:
    operator.execute_command(f"{rights.rule(settings, 'worker')} on >pw")
    operator.execute_command("ACL LOG RESET")
    url = f"redis://worker:pw@127.0.0.1:{own_redis.port}/0"
    with fleet(settings.model_copy(update={"redis_url": url}), tmp_path / "fleet") as nodes:
        nodes.start_worker()
        jobs = nodes.client.submit_many([{"prompt": "x", "height": 16, "width": 16}] * 2)
        assert {nodes.client.wait(job.id, 30).status.value for job in jobs} == {"succeeded"}
    assert operator.execute_command("ACL LOG") == []


def test_nobody_there(doctor: Doctor) -> None:
    port = free_port()
    report = doctor("redis,workers", SAFELIGHT_REDIS_URL=f"redis://127.0.0.1:{port}/0")
    assert report.code == 4
    report.says("redis.reach", "FAIL", f"nothing listens at 127.0.0.1:{port}", "SAFELIGHT_REDIS_URL")
    assert report.bad["workers.all"] == "skipped"


def test_a_black_hole(doctor: Doctor, black_hole: int) -> None:
    url = f"redis://127.0.0.1:{black_hole}/0"
    report = doctor("redis", "--timeout", "0.2", SAFELIGHT_REDIS_URL=url)
    assert report.code == 4
    report.says("redis.reach", "FAIL", "accepts connections and says nothing", "SAFELIGHT_REDIS_URL")


def test_a_name_that_does_not_resolve(doctor: Doctor) -> None:
    report = doctor("redis", SAFELIGHT_REDIS_URL="redis://nowhere.invalid:6379/0")
    assert report.code == 4
    report.says("redis.reach", "FAIL", "nowhere.invalid", "does not resolve")


def test_tls_where_there_is_none(doctor: Doctor, own_redis: RedisServer) -> None:
    url = f"rediss://127.0.0.1:{own_redis.port}/0"
    report = doctor("redis", "--timeout", "0.5", SAFELIGHT_REDIS_URL=url)
    report.says("redis.reach", "FAIL", "does not speak TLS", "write redis://")


def test_the_store_s_port_instead(doctor: Doctor, s3_server: S3Server) -> None:
    report = doctor("redis", SAFELIGHT_REDIS_URL=f"redis://127.0.0.1:{s3_server.port}/0")
    report.says("redis.reach", "FAIL", "a web server answers", "6379")


def test_a_database_that_is_not_there(doctor: Doctor, own_redis: RedisServer) -> None:
    report = doctor("redis", SAFELIGHT_REDIS_URL=own_redis.url.replace("/0", "/99"))
    report.says("redis.login", "FAIL", "no database 99", "/0")


def test_a_replica(doctor: Doctor, own_redis: RedisServer, operator: redis.Redis) -> None:
    operator.replicaof("127.0.0.1", free_port())
    try:
        report = doctor("redis", SAFELIGHT_REDIS_URL=own_redis.url)
    finally:
        operator.replicaof("NO", "ONE")
    report.says("redis.role", "FAIL", "read-only replica of 127.0.0.1:", "primary")


def test_a_clock_that_is_off(settings: Settings) -> None:
    late: Any = {each.check: each for each in areas.redis(Scope(settings, now=lambda: time.time() - 60))}
    assert late["redis.clock"].status == "warn"
    assert "60.0 s ahead of this machine's" in late["redis.clock"].found
    assert "NTP" in late["redis.clock"].remedy

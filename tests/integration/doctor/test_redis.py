"""A real Redis, set up badly in the ways that operators know: each names its cause and the setting to change."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tasks.connection import connect
from tasks.doctor import areas
from tasks.doctor.scope import Scope
from tasks.errors import ConfigError
from tasks.local.process import free_port
from tasks.local.servers import RedisServer, S3Server
from tasks.redis_rights import acl_line, producer_samples
from tasks.redis_start import check_start
from tasks.settings import Settings
from tests.integration.doctor.conftest import Doctor
from tests.redis_kinds import Guarded, running
from tests.tls_proxy import make_papers, tls_proxy

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
    report.says("redis.eviction", "FAIL", "allkeys-lru", "maxmemory-policy noeviction")
    operator.config_set("maxmemory-policy", "volatile-lru")
    report = doctor("redis", SAFELIGHT_REDIS_URL=own_redis.url)
    assert report.code == 0
    report.says("redis.eviction", "warn", "volatile-lru", "idempotency keys", "noeviction")


def test_nothing_is_written_to_disk(doctor: Doctor, own_redis: RedisServer, operator: redis.Redis) -> None:
    operator.config_set("appendonly", "no")
    report = doctor("redis", SAFELIGHT_REDIS_URL=own_redis.url)
    assert report.code == 0
    report.says("redis.persistence", "warn", "nothing is written to disk", "appendonly yes")
    operator.config_set("save", "3600 1")
    doctor("redis").says("redis.persistence", "warn", "snapshots alone", "appendonly yes")


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
    operator.execute_command(acl_line("worker"), "on", ">pw")
    url = f"redis://worker:pw@127.0.0.1:{own_redis.port}/0"
    assert doctor("redis,broker", SAFELIGHT_REDIS_URL=url).bad == {"broker.database": "skipped"}  # SCAN is not granted
    operator.execute_command("ACL SETUSER worker -xadd")
    report = doctor("redis,broker")
    assert report.code == 1
    assert report.bad == {"redis.rights": "FAIL", "broker.all": "skipped"}
    assert report["redis.rights"].remedy == "ACL SETUSER worker +xadd"
    operator.execute_command(report["redis.rights"].remedy)
    assert doctor("redis").code == 0


def test_a_user_who_is_enough_for_an_api(doctor: Doctor, own_redis: RedisServer, operator: redis.Redis) -> None:
    operator.execute_command(acl_line("worker"), "on", ">pw")
    operator.execute_command("ACL SETUSER worker -brpop resetchannels")
    operator.sadd("_kombu.binding.celery.pidbox", "\x06\x16\x06\x16safelight@h.celery.pidbox")  # a worker listens
    report = doctor("redis,broker", SAFELIGHT_REDIS_URL=f"redis://worker:pw@127.0.0.1:{own_redis.port}/0")
    assert report.bad == {"redis.rights": "warn", "broker.database": "skipped", "broker.visibility": "skipped"}
    assert report["redis.rights"].remedy == "ACL SETUSER worker +brpop &/0.celery.pidbox"


def test_a_user_who_lacks_keys_and_the_channel(doctor: Doctor, own_redis: RedisServer, operator: redis.Redis) -> None:
    operator.execute_command("ACL SETUSER worker on >pw ~safelight.* resetchannels +@all")
    operator.set("safelight:witness", 1)
    env = {"SAFELIGHT_KEY_PREFIX": "safelight:", "SAFELIGHT_SUBMIT_QUEUES": "safelight.submit,celery"}
    report = doctor("redis", SAFELIGHT_REDIS_URL=f"redis://worker:pw@127.0.0.1:{own_redis.port}/0", **env)
    wanted = "~safelight:* ~unacked* ~_kombu.binding* ~celery* ~*.celery.pidbox* &/0.celery.pidbox"
    assert report["redis.rights"].remedy == f"ACL SETUSER worker {wanted}"
    assert operator.keys() == ["safelight:witness"]  # asking has executed nothing


def test_a_user_who_may_do_little_gets_the_whole_line(
    doctor: Doctor, own_redis: RedisServer, operator: redis.Redis
) -> None:
    operator.execute_command("ACL SETUSER worker on >pw ~* +@connection +@transaction")
    env = {"SAFELIGHT_KEY_PREFIX": "pictures:", "SAFELIGHT_SUBMIT_QUEUES": "celery"}
    url = f"redis://worker:pw@127.0.0.1:{own_redis.port}/2"
    remedy = doctor("redis", SAFELIGHT_REDIS_URL=url, **env)["redis.rights"].remedy
    assert remedy == acl_line("worker", "pictures:", ["celery"], 2)
    assert all(word in remedy.split() for word in ("~pictures:*", "~celery*", "&/2.celery.pidbox"))
    operator.execute_command(remedy)
    assert doctor("redis").bad == {}


def test_without_transactions_nothing_is_executed(
    doctor: Doctor, own_redis: RedisServer, operator: redis.Redis
) -> None:
    operator.execute_command("ACL SETUSER worker on >pw ~* &* +@all -multi")
    report = doctor("redis", SAFELIGHT_REDIS_URL=f"redis://worker:pw@127.0.0.1:{own_redis.port}/0")
    assert report["redis.rights"].status == "FAIL"
    assert report["redis.rights"].remedy == "ACL SETUSER worker +@transaction"
    assert operator.keys() == []


def test_a_command_that_was_renamed_is_no_matter_of_rights(doctor: Doctor, tmp_path: Path) -> None:
    with running(tmp_path / "redis", "valkey", "--rename-command", "HSETNX", "hidden") as server:
        report = doctor("redis", SAFELIGHT_REDIS_URL=server.url)
        report.says("redis.rights", "FAIL", "does not know hsetnx", "rename-command")
        with pytest.raises(ConfigError, match="does not know hsetnx: take back rename-command"):
            check_start(connect(Settings(redis_url=server.url)), producer_samples("safelight:", ["tiny"]))


def test_sentinels(doctor: Doctor, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        guarded = Guarded(tmp_path, stack)
        url = guarded.url()
        report = doctor("redis,broker", SAFELIGHT_REDIS_URL=url)
        assert report.bad == {}
        primary = f"127.0.0.1:{guarded.primary.port}"
        report.says("redis.sentinels", "ok", f"3 agree that pictures is {primary}")
        one = url.split(";")[-1]
        doctor("redis", SAFELIGHT_REDIS_URL=one).says("redis.sentinels", "warn", "one sentinel", "name the others")
        away = f"sentinel://127.0.0.1:{free_port()};{one}"
        report = doctor("redis", SAFELIGHT_REDIS_URL=away)
        assert report.bad == {"redis.sentinels": "warn"}
        report.says("redis.sentinels", "warn", "1 of 2 give no answer", "start them")
        report = doctor("redis", SAFELIGHT_REDIS_URL=one.replace("pictures", "photos"))
        assert report.code == 4
        report.says("redis.sentinels", "FAIL", "knows no primary photos", "master_name")
        report.says("redis.reach", "FAIL", "no sentinel of photos", "master_name")
        with redis.Redis(port=guarded.ports[0]) as sentinel:
            sentinel.execute_command("SENTINEL", "REMOVE", "pictures")
            sentinel.execute_command("SENTINEL", "MONITOR", "pictures", "127.0.0.1", free_port(), 2)
        doctor("redis", SAFELIGHT_REDIS_URL=url).says("redis.sentinels", "FAIL", "do not agree", primary)


def test_tls(doctor: Doctor, own_redis: RedisServer, tmp_path: Path) -> None:
    papers = make_papers(tmp_path)
    with tls_proxy(papers, own_redis.port) as port:
        url = f"rediss://127.0.0.1:{port}/0?{papers.parameters}"
        report = doctor("redis,broker", SAFELIGHT_REDIS_URL=url)
        assert report.bad == {}
        report.says("redis.tls", "ok", "TLSv1", "certificate checked")
        lax = doctor("redis", SAFELIGHT_REDIS_URL=f"{url}&ssl_check_hostname=false")
        lax.says("redis.tls", "warn", "any host", "ssl_check_hostname")
        unknown = doctor("redis", "--timeout", "1", SAFELIGHT_REDIS_URL=url.partition("?")[0])
        unknown.says("redis.reach", "FAIL", "is not trusted", "ssl_ca_certs")
        plain = doctor("redis", "--timeout", "1", SAFELIGHT_REDIS_URL=f"redis://127.0.0.1:{port}/0")
        plain.says("redis.reach", "FAIL", f"127.0.0.1:{port} speaks TLS", "rediss://")


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

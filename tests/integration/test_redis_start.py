"""What worker and API refuse at the start, with the sentence and the exit code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from tasks import Client
from tasks.connection import connect
from tasks.errors import ConfigError, StoreUnavailable
from tasks.local.process import free_port
from tasks.local.servers import S3Server
from tasks.redis_rights import producer_samples, worker_samples
from tasks.redis_start import check_start
from tasks.settings import Settings
from tests.integration.test_api_serve import environment
from tests.integration.test_start_up import assert_one_line, start
from tests.redis_kinds import running
from tests.unit.test_redis_rights import documented

WORKER = worker_samples("safelight:", ["tiny"], ["safelight.submit"], 0)
PRODUCER = producer_samples("safelight:", ["tiny"])


@dataclass(frozen=True)
class Server:
    admin: Any
    port: int

    def client(self, user: str = "") -> Any:
        return connect(Settings(redis_url=self.url(user)))

    def url(self, user: str = "") -> str:
        return f"redis://{user and user + ':PASSWORD@'}127.0.0.1:{self.port}/0"

    def grant(self, user: str, *, without: str = "") -> str:
        """The documented line for another name, less one right."""
        words = [user if word == "safelight" else word for word in documented() if word != without]
        self.admin.execute_command(*words)
        return user


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("redis")) as server:
        with redis.Redis(port=server.port) as admin:
            yield Server(admin, server.port)


@pytest.fixture
def changed(server: Server) -> Iterator[Server]:
    """The same, put right afterwards."""
    yield server
    server.admin.config_set("maxmemory-policy", "noeviction")
    server.admin.config_set("appendonly", "yes")


def test_a_sound_server_and_the_documented_user_pass(server: Server) -> None:
    assert check_start(server.client(), WORKER) == []
    assert check_start(server.client(server.grant("whole")), WORKER) == []
    assert server.admin.dbsize() == 0, "the dry run left something behind"


@pytest.mark.parametrize(
    ("without", "named"),
    [
        ("+xadd", "+xadd"),
        ("+script|load", "+script|load"),
        ("+brpop", "+brpop"),
        ("~safelight:*", "~safelight:jobs"),
        ("~safelight.*", "~safelight.tiny"),
        ("~unacked*", "~unacked, ~unacked_index, ~unacked_mutex"),
        ("~_kombu.binding*", "~_kombu.binding_deadlines"),
        ("&/0.celery.pidbox", "&/0.celery.pidbox"),
        ("+@transaction", "+multi"),
    ],
)
def test_a_right_that_is_missing_is_named(server: Server, without: str, named: str) -> None:
    user = server.grant(f"no-{without}", without=without)
    with pytest.raises(ConfigError) as caught:
        check_start(server.client(user.replace(":", "%3A").replace("/", "%2F")), WORKER)
    assert f" {named}" in str(caught.value) and "docs/redis.md" in str(caught.value)
    assert server.admin.dbsize() == 0, "the dry run was executed"
    server.admin.acl_deluser(user)


def test_a_producer_needs_no_right_of_a_worker(server: Server) -> None:
    user = server.grant("producer", without="+brpop")
    assert check_start(server.client(user), PRODUCER) == []


def test_a_user_without_info_starts_and_is_told(server: Server) -> None:
    user = server.grant("blind", without="+info")
    [warning] = check_start(server.client(user), WORKER)
    assert "INFO" in warning


def test_eviction_and_persistence_are_looked_at(changed: Server) -> None:
    changed.admin.config_set("maxmemory-policy", "volatile-lru")
    changed.admin.config_set("appendonly", "no")
    eviction, persistence = check_start(changed.client(), WORKER)
    assert "volatile-lru" in eviction and "appendonly" in persistence
    changed.admin.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(ConfigError, match=r"allkeys-lru.* set maxmemory-policy noeviction"):
        check_start(changed.client(), WORKER)


def test_a_node_of_a_cluster_is_refused(tmp_path: Path) -> None:
    with running(tmp_path, "valkey", "--cluster-enabled", "yes") as node:
        with pytest.raises(ConfigError, match="Redis Cluster"):
            check_start(connect(Settings(redis_url=node.url)), WORKER)


def test_sentinels_that_do_not_know_the_primary_are_named() -> None:
    url = f"sentinel://127.0.0.1:{free_port()}/0?master_name=pictures"
    with pytest.raises(StoreUnavailable, match=r"pictures \(by sentinels 127\.0\.0\.1:.*master_name"):
        check_start(connect(Settings(redis_url=url)), WORKER)


def test_the_worker_leaves_with_2(server: Server, settings: Settings) -> None:
    user = server.grant("worker", without="+zadd")
    assert_one_line(start(settings, SAFELIGHT_REDIS_URL=server.url(user)), 2, "+zadd", "docs/redis.md")


def test_the_api_leaves_with_2(changed: Server, s3_server: S3Server) -> None:
    changed.admin.config_set("maxmemory-policy", "allkeys-random")
    env = environment(changed.url(), s3_server)
    command = [sys.executable, "-m", "api_stub", "--port", "0"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
    assert "allkeys-random" in ended.stderr


def test_a_primary_without_replicas_that_should_have_some_is_said(server: Server) -> None:
    server.admin.config_set("min-replicas-to-write", 1)
    try:
        with Client(redis_url=server.url()) as client, pytest.raises(StoreUnavailable, match="replicas back"):
            client.submit(prompt="x")
    finally:
        server.admin.config_set("min-replicas-to-write", 0)


def test_an_abort_of_a_running_job_has_no_ttl_that_eviction_could_take(redis_url: str) -> None:
    with Client(redis_url=redis_url) as client, redis.Redis.from_url(redis_url) as admin:
        job_id = client.submit(prompt="x").id
        client.store.claim(job_id, "w", 30)
        client.abort(job_id)
        assert admin.pttl(f"safelight:abort:{job_id}") == -1

"""Real servers for the whole session, one Redis database and one bucket for each test."""

from __future__ import annotations

import gc
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import redis

from tasks.local.servers import RedisServer, S3Server, start_redis, start_s3
from tasks.settings import Settings

_numbers = itertools.count()

#: The files that take longest, longest first: they begin first, so that the end of a run waits for none of them.
_LONG = (
    "test_faults",
    "test_page",
    "test_adapter_loras",
    "test_resume",
    "test_worker",
    "test_chaos",
    "test_lockstep",
    "test_adapter_steps",
    "test_start_up",
    "test_demo",
    "test_redis",
    "test_custody",
    "test_adapter_families_steps",
    "test_adapter_families",
    "test_artifacts",
    "test_ranks_lost",
    "test_rolling_restart",
    "test_adapter_whole",
    "test_adapter_resume",
    "test_observe",
    "test_spool",
    "test_openai",
)

# Here and in every process that a test starts: tests share few cores, where a second thread of OpenMP only waits.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell has what it runs in the background ignore Ctrl-C, and so would do every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines are busy, and the first run of a clone builds tables of characters: to take long is no fault.
patient = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("patient", patient)
# A run that decides about a merge must not depend on luck; elsewhere hypothesis goes on looking.
hypothesis.settings.register_profile("ci", patient, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: number for number, name in enumerate(_LONG)}

    def of(item: pytest.Item) -> int:
        name = item.path.stem
        return rank["test_page"] if name.startswith("test_page_") else rank.get(name, len(_LONG))

    items.sort(key=of)


def pytest_collection_finish() -> None:
    """What torch and diffusers have imported by now stays: no collection of garbage has to look through it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file stays in one process, which starts its shared models once; so do the files that share the browser."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "the browser" if "/test_page" in file else str(file)

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = start_redis(tmp_path_factory.mktemp("redis"))
    yield server
    server.process.stop()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    # SeaweedFS puts unix sockets in its folder, whose paths are limited to 108 bytes: keep it short.
    server = start_s3(Path(tmp_path_factory.mktemp("s3")))
    yield server
    server.process.stop()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """An empty Redis: the shared server, flushed before the test."""
    with redis.Redis(port=redis_server.port) as client:
        client.flushall()
    return redis_server.url


@pytest.fixture
def settings(
    redis_url: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    """Settings for an empty Redis and a bucket name of this test's own; credentials are in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    bucket = f"test-{os.getpid()}-{next(_numbers)}"
    return Settings(
        redis_url=redis_url,
        s3_endpoint_url=s3_server.url,
        s3_bucket=bucket,
        lease_s=3,
        worker_name="test",
        spool_dir=tmp_path_factory.getbasetemp() / "spool" / bucket,
    )

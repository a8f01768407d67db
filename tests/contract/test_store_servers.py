"""The store on every release of Redis that can be had here, on a cluster, and what commands it takes for that."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from tasks import webhook_queue
from tasks.connection import connect
from tasks.local.servers import RedisServer
from tasks.redis_rights import worker_samples
from tasks.redis_start import check_start
from tasks.redis_store import SCRIPT
from tasks.settings import Settings
from tests.contract.stores import Lab, client_lab, redis_lab
from tests.contract.test_transitions import QUOTAS, live
from tests.redis_kinds import RELEASES, running, running_cluster

OLDEST = (6, 2, 0)


@pytest.fixture(scope="module", params=[release for release in RELEASES if release != "valkey"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running(tmp_path_factory.mktemp("release"), request.param) as server:
        yield server


def fresh_labs(make: Callable[[str], Lab]) -> Callable[[], Lab]:
    """A lab with keys of its own at each call; the tag keeps them in one slot of a cluster."""
    numbers = itertools.count()
    return lambda: make(f"{{lives-{next(numbers)}}}:")


def test_a_release_keeps_the_contract(server: RedisServer) -> None:
    client = connect(Settings(redis_url=server.url))
    assert check_start(client, worker_samples("safelight:", ["tiny"], [], 0)) == []
    live(fresh_labs(lambda prefix: redis_lab(server.url, max_queued=3, prefix=prefix, quotas=QUOTAS)), max_examples=3)


def test_a_cluster_keeps_the_contract_under_a_hash_tag(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        live(
            fresh_labs(lambda prefix: client_lab(cluster, cluster, max_queued=3, prefix=prefix, quotas=QUOTAS)),
            max_examples=3,
        )
        with pytest.raises(Exception, match=r"docs/redis\.md"):  # and without one it says so
            client_lab(cluster, cluster).create("a")


def test_a_hash_tag_in_the_prefix_puts_all_keys_into_one_slot(redis_url: str) -> None:
    lab = redis_lab(redis_url, prefix="{safelight}:")
    for number, group in enumerate(["g", "{other}"]):
        lab.create(f"job-{number}", group=group, key=f"{{key}}-{number}", webhook_url="https://example.org/{x}")
        lab.crash(f"job-{number}")
        lab.store.abort(f"job-{number}")
    lab.create("last")
    lab.store.beat("worker{1}", {}, 10)
    with redis.Redis.from_url(redis_url) as client:
        keys = list(client.scan_iter(count=1000))
    assert len(keys) > 15
    assert {key_slot(key) for key in keys} == {key_slot(b"{safelight}:")}


def commands_in(script: str) -> set[str]:
    return {name.lower() for name in re.findall(r"\bcall\('([A-Z]+)'", script)}


def test_no_command_of_ours_or_of_celery_is_newer_than_6_2(redis_url: str) -> None:
    sent = {sample.command for sample in worker_samples("safelight:", ["tiny"], [], 0)}
    in_scripts = commands_in(SCRIPT) | commands_in(webhook_queue._SCRIPT)
    assert in_scripts <= sent, "what a script calls is asked for at the start"
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        since = {name: since_of(client, name) for name in sent}
    assert {name for name, version in since.items() if version > OLDEST} == set()


def since_of(client: Any, name: str) -> tuple[int, ...]:
    command, _, sub = name.partition("|")
    [(_, told)] = _pairs(client.execute_command("COMMAND DOCS", command))
    docs = dict(_pairs(told))
    if sub:
        docs = dict(_pairs(dict(_pairs(docs["subcommands"]))[name]))
    return tuple(int(part) for part in docs["since"].split("."))


def _pairs(answer: Any) -> list[tuple[str, Any]]:
    """A map, in the shape of either protocol version."""
    return list(answer.items()) if isinstance(answer, dict) else list(zip(answer[::2], answer[1::2], strict=True))

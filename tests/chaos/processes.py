"""The processes of a run: servers, workers and APIs behind proxies of their own, and their supervisor."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import redis

from tasks.errors import StoreUnavailable
from tasks.local.process import ChildProcess, free_port
from tasks.local.servers import start_redis, start_s3
from tasks.settings import Settings
from tests.chaos.disk import SmallDisk
from tests.chaos.plan import (
    APIS,
    CALM_S,
    LEASE_S,
    LOOK_AHEAD_ROWS,
    MAX_BATCH_ROWS,
    MODELS,
    SKEWED,
    TENANTS,
    TENANTS_FILE,
    WORKERS,
)
from tests.chaos.proxy import Proxies
from tests.e2e.nodes import environment

_RESTART_PAUSE_S, _CALM_PATIENCE_S, _BUSY_PATIENCE_S = 0.3, 60.0, 4.0


@dataclass
class Death:
    """A worker that was killed with SIGKILL."""

    pid: int
    at_ms: float
    #: Until then no other fault strikes; None if it came amid others.
    calm_until_ms: float | None


@dataclass
class Ward:
    """A process that is started again whenever it has ended."""

    name: str
    command: list[str]
    env: Mapping[str, str]
    log: Path
    process: ChildProcess | None = None
    num_starts: int = 0
    exits: list[int] = field(default_factory=list)

    def look_after(self) -> None:
        if self.process is not None:
            if self.process.returncode is None:
                return
            self.exits.append(self.process.returncode)
            self.process.stop()
            time.sleep(_RESTART_PAUSE_S)
        self.process = ChildProcess(self.name, self.command, log=self.log, env=self.env)
        self.num_starts += 1


def key_of(tenant: str) -> str:
    """Of the API."""
    return f"key-of-{tenant}"


class Processes:
    """Redis, S3, two workers and two APIs. `direct` reaches the servers past all proxies."""

    def __init__(self, home: Path, *, step_ms: float = 10.0) -> None:
        self.home = home
        self.step_log = home / "steps.log"
        self.step_log.touch()
        self.clock_file = home / "clock"
        self.clock_file.write_text("0", "ascii")
        self.tenants_file = home / "tenants.toml"
        self.tenants_file.write_text(TENANTS_FILE, "ascii")
        self.disk = SmallDisk(home / "spool", home / "disk.log")
        self.deaths: list[Death] = []
        self._stopping = threading.Event()
        self._exclusive = threading.Lock()
        self._redis = start_redis(home / "redis")
        self._s3 = start_s3(home / "s3")
        os.environ |= {"AWS_ACCESS_KEY_ID": self._s3.access_key, "AWS_SECRET_ACCESS_KEY": self._s3.secret_key}
        self.proxies = Proxies()
        self._write_models(step_ms)
        self.direct = self._settings(self._redis.port, self._s3.port)
        self.wards = {name: self._ward(name) for name in (*WORKERS, *APIS)}
        self.producers = self._settings(self.proxies.add("redis producers", self._redis.port), self._s3.port)
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor", daemon=True)

    def _write_models(self, step_ms: float) -> None:
        rows, steps = MODELS
        source = f"fake:step_ms={step_ms:g},step_log={self.step_log}"
        shared = (
            f'source = "{source}"\nmax_batch_rows = {MAX_BATCH_ROWS}\n'
            "defaults = { height = 16, width = 16, num_inference_steps = 4 }\n"
            "limits = { min_size = 8, max_size = 64, max_steps = 1000 }\n"
        )
        text = f'[{rows}]\nmode = "request"\n{shared}[{steps}]\nmode = "step"\n{shared}'
        (self.home / "models.toml").write_text(text, "utf-8")

    def _settings(self, redis_port: int, s3_port: int) -> Settings:
        return Settings(
            redis_url=f"redis://127.0.0.1:{redis_port}/0",
            s3_endpoint_url=f"http://127.0.0.1:{s3_port}",
            s3_bucket="chaos",
            models=self.home / "models.toml",
            lease_s=LEASE_S,
            drain_grace_s=2.0,
            upload_patience_s=120.0,
            spool_dir=self.home / "spool",
            look_ahead_rows=LOOK_AHEAD_ROWS,
            tenants=self.tenants_file,
            allow_private_urls=True,
        )

    def _ward(self, name: str) -> Ward:
        settings = self._settings(
            self.proxies.add(f"redis {name}", self._redis.port), self.proxies.add(f"s3 {name}", self._s3.port)
        )
        env = {**os.environ, **environment(settings), "SAFELIGHT_WORKER_NAME": name, "OMP_NUM_THREADS": "1"}
        command = self.disk.seen_by([sys.executable, "-m", "worker"])
        if name in APIS:
            command = [sys.executable, "-m", "api_stub", "--port", str(free_port())]
            env["SAFELIGHT_API_KEYS"] = ",".join(f"{tenant}:{key_of(tenant)}" for tenant in TENANTS)
        if name == SKEWED:
            command = self.disk.seen_by([sys.executable, "-m", "tests.chaos.skewed_worker", str(self.clock_file)])
        return Ward(name, command, env, self.home / f"{name}.log")

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for ward in self.wards.values():
            ward.look_after()
        self._supervisor.start()

    def _supervise(self) -> None:
        while not self._stopping.wait(0.05):
            for ward in self.wards.values():
                ward.look_after()

    def api_urls(self) -> list[str]:
        return [f"http://127.0.0.1:{self.wards[name].command[-1]}" for name in APIS]

    def heal(self) -> None:
        """Every fault is over."""
        self.proxies.heal()
        self.disk.free()
        self.clock_file.write_text("0", "ascii")
        for ward in self.wards.values():
            if ward.process is not None:
                ward.process.send(signal.SIGCONT)

    def stop(self) -> None:
        self.heal()
        self._stopping.set()
        if self._supervisor.ident is not None:
            self._supervisor.join(10)
        for ward in self.wards.values():
            if ward.process is not None:
                ward.process.send(signal.SIGTERM)
        for ward in self.wards.values():
            if ward.process is not None:
                ward.process.stop(20)

    def stop_servers(self) -> None:
        self.proxies.stop()
        self._redis.process.stop()
        self._s3.process.stop()
        self.disk.stop()

    def num_logged(self, what: str) -> int:
        """Lines of the workers' logs that have it."""
        return sum((self.home / f"{name}.log").read_text("utf-8", "replace").count(what) for name in WORKERS)

    def logs(self, num_bytes: int = 3000) -> str:
        paths = sorted(self.home.glob("*.log"))
        return "\n".join(
            f"== {p.name}\n{p.read_text('utf-8', 'replace')[-num_bytes:]}" for p in paths if p != self.step_log
        )

    def wait_for_calm(self, due: float) -> float:
        """Until both workers have served for two leases, so that one may judge the other; the seconds beyond `due`."""
        steady_since = time.monotonic()
        give_up_at = due + _CALM_PATIENCE_S
        while time.monotonic() < give_up_at:
            if not self._both_serve():
                steady_since = time.monotonic()
            elif time.monotonic() > max(due, steady_since + 2 * LEASE_S):
                break
            time.sleep(0.1)
        return max(0.0, time.monotonic() - due)

    def _both_serve(self) -> bool:
        pids = {ward.process.pid for name in WORKERS if (ward := self.wards[name]).process is not None}
        with contextlib.suppress(redis.RedisError), redis.Redis(port=self._redis.port, socket_timeout=3) as client:
            names = [name.decode() for name in client.zrange("safelight:workers", 0, -1)]
            return pids <= {int(name.split(":")[1]) for name in names}
        return False

    def wait_until_busy(self, name: str) -> None:
        """Until the worker runs a job, so that harm to it is harm; not for long."""
        give_up_at = time.monotonic() + _BUSY_PATIENCE_S
        while time.monotonic() < give_up_at and not self._held_by(name):
            time.sleep(0.05)

    def _held_by(self, name: str) -> set[tuple[str, str]]:
        """Jobs and attempts that Redis has the worker's present process run."""
        process = self.wards[name].process
        try:
            with redis.Redis(port=self._redis.port, socket_timeout=3, decode_responses=True) as client:
                ids: list[str] = client.zrange("safelight:leases", 0, -1)
                records = {job_id: client.hmget(f"safelight:job:{job_id}", "worker", "attempt") for job_id in ids}
        except redis.RedisError:
            return set()
        mark = f":{process.pid if process else 0}:"
        return {(job_id, str(attempt)) for job_id, (worker, attempt) in records.items() if mark in (worker or "")}

    def _is_overtaken(self, held: set[tuple[str, str]]) -> bool:
        """Whether a later attempt of any of them has begun."""
        with contextlib.suppress(redis.RedisError), redis.Redis(port=self._redis.port, socket_timeout=3) as client:
            return any(
                int(client.hget(f"safelight:job:{job_id}", "attempt") or 0) > int(attempt) for job_id, attempt in held
            )
        return False

    # -- harm ---------------------------------------------------------------------------------------------------

    def send(self, name: str, signum: int) -> None:
        process = self.wards[name].process
        if process is not None:
            process.send(signum)

    def make_zombie(self, name: str) -> None:
        """Freeze a worker until another runs, or has run, something that it held, and let it go on then."""
        self.wait_until_busy(name)
        self.send(name, signal.SIGSTOP)
        held = self._held_by(name)
        give_up_at = time.monotonic() + _CALM_PATIENCE_S
        while held and time.monotonic() < give_up_at and not self._is_overtaken(held):
            time.sleep(0.05)
        self.send(name, signal.SIGCONT)

    def kill_worker(self, name: str, *, is_calm: bool) -> None:
        calm_until_ms = (time.time() + CALM_S) * 1000 if is_calm else None
        self.wait_until_busy(name)
        process = self.wards[name].process
        if process is not None and process.returncode is None:
            process.send(signal.SIGKILL)
            self.deaths.append(Death(process.pid, time.time() * 1000, calm_until_ms))

    def kill_redis(self, down_s: float) -> None:
        with self._exclusive:
            port = self._redis.port
            self._redis.process.send(signal.SIGKILL)
            self._redis.process.stop()
            time.sleep(down_s)
            for is_last in (False, False, True):
                try:
                    self._redis = start_redis(self.home / "redis", port=port)
                    return
                except StoreUnavailable:
                    if is_last:
                        raise

    def kill_clients(self) -> None:
        with contextlib.suppress(redis.RedisError), redis.Redis(port=self._redis.port, socket_timeout=3) as admin:
            for kind in ("normal", "pubsub"):
                admin.client_kill_filter(_type=kind, skipme=True)

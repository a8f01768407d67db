"""The whole system on one machine: Redis, S3, a worker and the API as children of this process.

Starts them in order, waits until each really serves, restarts what dies, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Self

from tasks.errors import ConfigError, StoreUnavailable
from tasks.local.environment import child_environment, stack_exports, stack_settings, write_env_file
from tasks.local.process import ChildProcess, free_port
from tasks.local.servers import answers_ok, start_redis, start_s3
from tasks.redis_store import RedisJobStore, connect

API_PORT = 8000
_REDIS_PORT = 6390
_S3_PORT = 8333
#: Started before the programs that use them, and stopped after.
_SERVERS = ("redis", "s3")
_READY_S = 180.0
_MAX_PAUSE_S = 30.0
_STEADY_S = 60.0

PartState = Literal["starting", "ready", "ended", "stopped"]
#: Called with a part's name, its new state and a note for a person.
Tell = Callable[[str, PartState, str], None]


@dataclass
class Part:
    """One process of the stack. `launch` may block until it serves; `probe` says whether it does."""

    name: str
    launch: Callable[[], ChildProcess]
    probe: Callable[[], bool] = lambda: True
    note: str = ""
    process: ChildProcess | None = None
    started_at: float = 0.0
    ready: bool = False
    num_quick_deaths: int = 0
    #: When a dead part is started again.
    due_at: float | None = None


class LocalStack:
    """A context manager: inside it everything serves; after it no process, port or temporary folder is left.

    Without `folder` the data lives in a temporary one, and the caller's own `SAFELIGHT_*` have no effect. `__enter__`
    raises `StoreUnavailable` with the end of a log if a part does not come up, and `ConfigError` if another stack holds
    the folder.
    """

    def __init__(self, folder: Path | None = None, *, api_port: int | None = None, tell: Tell | None = None) -> None:
        self._is_temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="safelight-")) if folder is None else folder.resolve()
        self._tell: Tell = (lambda name, state, note: None) if tell is None else tell
        self._taken: set[int] = set()
        self._api_port = api_port
        self._lock: IO[str] | None = None
        self._parts: list[Part] = []
        self.exports: dict[str, str] = {}

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self._api_port}"

    @property
    def env_file(self) -> Path:
        return self.folder / "env"

    def pids(self) -> dict[str, int]:
        return {part.name: part.process.pid for part in self._parts if part.process is not None}

    # -- start --------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._take_folder()
            self._start_servers()
            write_env_file(self.env_file, self.exports)
            self._start_programs()
        except BaseException:
            self.stop()
            raise
        return self

    def _take_folder(self) -> None:
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        lock = (self.folder / "lock").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise ConfigError(f"a local stack already runs on {self.folder}; stop it, or use another folder") from None
        self._lock = lock
        for log in logs.iterdir():
            log.unlink()
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        (self.folder / "tmp").mkdir()

    def _start_servers(self) -> None:
        prefer = (0, 0) if self._is_temporary else (_REDIS_PORT, _S3_PORT)
        redis_port, s3_port = (free_port(self._taken, prefer=port) for port in prefer)
        redis_folder, s3_folder = self.folder / "redis", self.folder / "s3"
        self._start(
            Part("redis", lambda: start_redis(redis_folder, port=redis_port).process, note=f"port {redis_port}")
        )
        self._start(Part("s3", lambda: start_s3(s3_folder, port=s3_port).process, note=f"port {s3_port}"))
        if self._api_port is None:
            self._api_port = free_port(self._taken, prefer=API_PORT)
        redis_url, s3_url = f"redis://127.0.0.1:{redis_port}/0", f"http://127.0.0.1:{s3_port}"
        self.exports = stack_exports(redis_url, s3_url, "safelight", "safelight-local", self.api_url)

    def _start_programs(self) -> None:
        api = ["api_stub", "--host", "127.0.0.1", "--port", str(self._api_port)]
        parts = (
            Part("worker", lambda: self._python("worker", ["worker"]), self._worker_is_ready),
            Part("api", lambda: self._python("api", api), self._api_is_ready, note=self.api_url),
        )
        for part in parts:
            self._start(part)
        for part in parts:
            assert part.process is not None
            part.process.wait_ready(part.probe, _READY_S)
            self._note_ready(part)

    def _start(self, part: Part) -> None:
        if part not in self._parts:
            self._parts.append(part)
        self._tell(part.name, "starting", part.note)
        part.due_at = None
        part.ready = False
        part.started_at = time.monotonic()
        part.process = part.launch()
        if part.name in _SERVERS:
            self._note_ready(part)

    def _note_ready(self, part: Part) -> None:
        part.ready = True
        self._tell(part.name, "ready", part.note)

    def _python(self, name: str, module: list[str]) -> ChildProcess:
        # -P: a folder of the user's named `worker` or `tasks` must not be imported instead of ours.
        command = [sys.executable, "-P", "-m", *module]
        env = child_environment(self.exports, inherits_settings=not self._is_temporary)
        env.setdefault("SAFELIGHT_SPOOL_DIR", str(self.folder / "spool"))
        env["TMPDIR"] = str(self.folder / "tmp")  # torch leaves a folder of its own there
        return ChildProcess(name, command, log=self.folder / "logs" / f"{name}.log", env=env)

    def _api_is_ready(self) -> bool:
        return answers_ok(f"{self.api_url}/readyz")

    def _worker_is_ready(self) -> bool:
        settings = stack_settings(self.exports)
        pid = self.pids()["worker"]
        with connect(settings) as client:
            workers = RedisJobStore(client, settings.key_prefix).workers()
        return any(worker.get("pid") == pid and worker.get("state") == "ready" for worker in workers)

    # -- watch --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Report the dead and start them again, later each time they die young. Call it about twice a second."""
        now = time.monotonic()
        for part in self._parts:
            assert part.process is not None
            if part.due_at is not None:
                if now >= part.due_at:
                    self._revive(part)
            elif part.process.returncode is not None:
                self._note_dead(part, now)
            elif not part.ready:
                with contextlib.suppress(OSError, StoreUnavailable):
                    if part.probe():
                        self._note_ready(part)

    def _note_dead(self, part: Part, now: float) -> None:
        assert part.process is not None
        code = part.process.stop()  # nothing of its group stays
        part.num_quick_deaths = 0 if now - part.started_at > _STEADY_S else part.num_quick_deaths + 1
        pause_s = min(2.0 ** max(0, part.num_quick_deaths - 1) - 1, _MAX_PAUSE_S)
        part.due_at = now + pause_s
        again = f"; starting it again in {pause_s:.0f} s" if pause_s else "; starting it again"
        self._tell(part.name, "ended", f"exit code {code}{again}. The end of its log:\n{part.process.tail()}")

    def _revive(self, part: Part) -> None:
        try:
            self._start(part)
        except StoreUnavailable as error:
            part.due_at = time.monotonic() + _MAX_PAUSE_S
            self._tell(part.name, "ended", f"{error}\nstarting it again in {_MAX_PAUSE_S:.0f} s")

    # -- stop ---------------------------------------------------------------------------------------------------

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Programs first, then their servers: SIGTERM, and SIGKILL after a bound. A second Ctrl-C hurries."""
        try:
            self._stop_parts(grace_s=10.0)
        except KeyboardInterrupt:
            self._stop_parts(grace_s=0.1)
        self._parts.clear()
        if self._lock is not None:
            self.env_file.unlink(missing_ok=True)
            self._lock.close()
            self._lock = None
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _stop_parts(self, grace_s: float) -> None:
        with ThreadPoolExecutor(max_workers=4) as pool:
            for are_servers in (False, True):
                going = {
                    part.name: pool.submit(part.process.stop, grace_s)
                    for part in self._parts
                    if (part.name in _SERVERS) is are_servers and part.process is not None
                }
                for name, stopped in going.items():
                    stopped.result()
                    self._tell(name, "stopped", "")

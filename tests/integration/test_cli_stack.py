"""Children of the local stack: they end with their parent, however it ends, and a dead one is told and replaced."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tasks.errors import ConfigError, StoreUnavailable
from tasks.local.environment import child_environment, read_env_file, stack_exports, stack_settings, write_env_file
from tasks.local.process import ChildProcess, free_port
from tasks.local.stack import LocalStack, Part


def eventually(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def group_of(pid: int) -> list[int]:
    """Live processes of the child's group: itself, what it started, and its guard."""
    return [each for each in psutil.pids() if is_alive(each) and _group(each) == pid]


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def test_a_child_keeps_its_pid_and_leaves_nothing(tmp_path: Path) -> None:
    child = ChildProcess("sleep", ["sleep", "60"], log=tmp_path / "log")
    assert eventually(lambda: psutil.Process(child.pid).name() == "sleep")
    assert child.stop() == -signal.SIGTERM
    assert eventually(lambda: not group_of(child.pid))


def test_grandchildren_go_too(tmp_path: Path) -> None:
    child = ChildProcess("sh", ["sh", "-c", "sleep 61 & sleep 61 & echo up; wait"], log=tmp_path / "log")
    assert eventually(lambda: child.tail() == "up")
    assert len(group_of(child.pid)) == 4
    child.stop()
    assert eventually(lambda: not group_of(child.pid))


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_children_end_with_their_parent(tmp_path: Path, signum: int) -> None:
    code = """
        import sys, threading, time
        from pathlib import Path
        from tasks.local.process import ChildProcess
        stubborn = ["sh", "-c", "trap '' TERM HUP INT; while :; do sleep 0.2; done"]
        started = []
        def start():  # on a thread that ends at once: the child must not notice
            started.append(ChildProcess("c", stubborn, log=Path(sys.argv[1])))
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        print(started[0].pid, flush=True)
        time.sleep(60)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    time.sleep(0.5)
    assert is_alive(pid)
    parent.send_signal(signum)
    parent.wait()
    assert eventually(lambda: not group_of(pid))


def test_a_child_that_fails_at_start_tells_why(tmp_path: Path) -> None:
    child = ChildProcess("broken", ["sh", "-c", "echo the reason; exit 7"], log=tmp_path / "log")
    with pytest.raises(StoreUnavailable, match=r"exit code 7[\s\S]*the reason"):
        child.wait_ready(lambda: False, 10)


def test_a_child_that_is_late_is_stopped(tmp_path: Path) -> None:
    child = ChildProcess("slow", ["sleep", "60"], log=tmp_path / "log")
    with pytest.raises(StoreUnavailable, match="not ready after"):
        child.wait_ready(lambda: False, 0.2)
    assert child.returncode is not None


def test_ports_are_given_once() -> None:
    taken: set[int] = set()
    first = free_port(taken)
    assert free_port(taken, prefer=first) != first


def test_the_env_file_round_trips_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "env"
    exports = stack_exports("redis://127.0.0.1:1/0", "http://127.0.0.1:2", "key", "a 'secret' $HOME", "http://[::1]:3")
    write_env_file(path, exports)
    write_env_file(path, exports)
    assert read_env_file(path) == exports
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    shown = subprocess.run(["sh", "-c", f'. {path}; echo "$AWS_SECRET_ACCESS_KEY"'], capture_output=True, text=True)
    assert shown.stdout == "a 'secret' $HOME\n"


def test_settings_of_a_stack_ignore_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    exports = stack_exports("redis://127.0.0.1:1/0", "http://127.0.0.1:2", "k", "s")
    monkeypatch.setenv("SAFELIGHT_REDIS_URL", "redis://elsewhere/0")
    monkeypatch.setenv("SAFELIGHT_API_KEYS", "secret")
    monkeypatch.setenv("AWS_PROFILE", "production")
    assert stack_settings(exports).redis_url == "redis://127.0.0.1:1/0"
    alone = child_environment(exports, inherits_settings=False)
    assert alone["SAFELIGHT_REDIS_URL"] == "redis://127.0.0.1:1/0"
    assert not {"SAFELIGHT_API_KEYS", "AWS_PROFILE"} & set(alone)
    assert child_environment(exports, inherits_settings=True)["SAFELIGHT_API_KEYS"] == "secret"


class Heard(list[tuple[str, str, str]]):
    def __call__(self, name: str, state: str, text: str) -> None:
        self.append((name, state, text))


def test_a_dead_part_is_told_and_replaced(tmp_path: Path) -> None:
    heard = Heard()
    stack = LocalStack(tmp_path, tell=heard)
    launched: list[ChildProcess] = []

    def launch() -> ChildProcess:
        launched.append(ChildProcess("part", ["sh", "-c", "echo up; exec sleep 60"], log=tmp_path / "log"))
        return launched[-1]

    stack._start(Part("part", launch))
    try:
        assert eventually(lambda: launched[0].tail() == "up")
        launched[0].send(signal.SIGKILL)
        assert eventually(lambda: launched[0].returncode is not None)
        assert eventually(lambda: bool(stack.check()) or len(launched) == 2)
        assert heard[1][:2] == ("part", "ended")
        assert "exit code -9" in heard[1][2]
        assert "up" in heard[1][2]
        assert stack.pids() == {"part": launched[1].pid}
    finally:
        stack.stop()
    assert eventually(lambda: not group_of(launched[1].pid))


def test_one_stack_a_folder(tmp_path: Path) -> None:
    first, second = LocalStack(tmp_path), LocalStack(tmp_path)
    first._take_folder()
    try:
        with pytest.raises(ConfigError, match="already runs"):
            second.__enter__()
    finally:
        first.stop()

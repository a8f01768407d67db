"""Python processes without the second of CPU that their imports take: a server that has imported everything forks them.

What comes out is a real process that begins at its `__main__`, with arguments, environment, session, log and exit code
of its own; signals meet it and nobody else. What it does not show: whether the command line of an operator finds and
imports what it needs. The tests of start-up, the demo and chaos start theirs by that.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tasks.local.process import ChildProcess

#: With all that a worker on a fake model, an API and the command line import. None of it opens or starts anything.
_IMPORTED = ("worker.node", "api_stub.serve", "tasks.cli.app")
#: What the interpreter, the loader or a library reads as it starts: a fork is too late for another value.
_READ_AT_START = ("PYTHON", "LD_", "OMP_", "MALLOC_", "LC_", "LANG")
_NUMBER = struct.Struct("i")


class ForkedProcess(ChildProcess):
    """`python -m module`, forked."""

    def __init__(self, name: str, module: str, *arguments: str, log: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self._lifeline = io.FileIO(os.devnull)  # the server is its guard
        with log.open("ab") as sink:
            self._process = _server().fork(module, arguments, env, sink.fileno())


class _Forked:
    """As much of `subprocess.Popen` as a `ChildProcess` needs. The server says the pid first, the exit code last."""

    def __init__(self, told: int) -> None:
        self._told = told
        self._code: int | None = None
        self.pid = self._read()

    def _read(self) -> int:
        said = os.read(self._told, _NUMBER.size)
        assert said, "the fork server is gone"
        return int(_NUMBER.unpack(said)[0])

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0)
            self._code = self._read()
            os.close(self._told)
        return self._code


class _Server:
    """It ends with this process, and kills what it forked."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._started_with = _read_at_start(os.environ)
        self._line, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True, **silent)

    def fork(self, module: str, arguments: Sequence[str], env: Mapping[str, str], log: int) -> _Forked:
        assert _read_at_start(env) == self._started_with, "this needs a start of its own"
        wish = {"module": module, "argv": ["", *arguments], "env": dict(env), "cwd": os.getcwd()}
        told, tells = os.pipe()
        with self._one_at_a_time:
            try:
                data = json.dumps(wish).encode() + b"\n"
                self._line.sendall(data[socket.send_fds(self._line, [data], [log, tells]) :])
            finally:
                os.close(tells)
            return _Forked(told)


_starting = threading.Lock()


def _server() -> _Server:
    with _starting:  # two at once would make two, of which one is lost with all that it forked
        return _the_server()


@functools.cache
def _the_server() -> _Server:
    return _Server()


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_READ_AT_START)}


# -- the other side -----------------------------------------------------------------------------------------------


class _Forks:
    """Who was forked and lives, and where the code goes that it will exit with."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._tells: dict[int, int] = {}
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> str | None:
        """In a fork: the module to run. Else: None when there is nobody any more who could want one."""
        while True:
            ready, _, _ = select.select([self._line, self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 64)
                self._reap()
            if self._line in ready:
                data, fds, *_ = socket.recv_fds(self._line, 2**16, 2)
                if not data:
                    return self._kill_all()
                while not data.endswith(b"\n"):
                    data += self._line.recv(2**16)
                if module := self._fork(json.loads(data), *fds):
                    return module

    def _fork(self, wish: dict[str, object], log: int, tells: int) -> str | None:
        pid = os.fork()
        if pid == 0:
            return self._become(wish, log, tells)
        os.close(log)
        self._tells[pid] = tells
        os.write(tells, _NUMBER.pack(pid))
        return None

    def _become(self, wish: dict, log: int, tells: int) -> str:
        """What the parent set for itself is undone, what the wish says is set."""
        os.setsid()
        wake = signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for stream in (1, 2):
            os.dup2(log, stream)
        for fd in (log, tells, wake, self._woken, *self._tells.values()):
            os.close(fd)
        self._line.close()
        os.environ.clear()
        os.environ.update(wish["env"])
        os.chdir(wish["cwd"])
        sys.argv = wish["argv"]
        return wish["module"]

    def _reap(self) -> None:
        while self._tells:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            tells = self._tells.pop(pid)
            with contextlib.suppress(BrokenPipeError):  # nobody wants to know
                os.write(tells, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
            os.close(tells)

    def _kill_all(self) -> None:
        for pid in self._tells:
            os.killpg(pid, signal.SIGKILL)


def _main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    for module in _IMPORTED:
        importlib.import_module(module)
    assert threading.active_count() == 1, "a fork would lack the other threads"
    gc.freeze()  # a collection in a fork would copy every page
    if module := _Forks(line).serve():
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()

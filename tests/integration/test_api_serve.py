"""The API as a process: where it listens, how it ends, and what it says when something is missing."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tasks.local.servers import S3Server


def environment(redis_url: str, s3: S3Server) -> dict[str, str]:
    return os.environ | {
        "SAFELIGHT_REDIS_URL": redis_url,
        "SAFELIGHT_S3_ENDPOINT_URL": s3.url,
        "AWS_ACCESS_KEY_ID": s3.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.secret_key,
    }


@contextmanager
def process(env: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "api_stub", *arguments]
    child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def url_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert found, line
    return found.group()


def test_port_0_prints_its_url_and_sigterm_ends_it(redis_url: str, s3_server: S3Server) -> None:
    with process(environment(redis_url, s3_server), "--port", "0") as child:
        url = url_of(child)
        assert httpx.get(f"{url}/readyz", timeout=20).json() == {"ready": True, "checks": {"redis": "ok", "s3": "ok"}}
        location = httpx.post(f"{url}/v1/jobs", json={"prompt": "a"}, timeout=20).headers["location"]
        with httpx.stream("GET", f"{url}{location}/events", timeout=20) as reply:  # an open stream does not hold it up
            assert next(reply.iter_lines()).startswith("retry:")
            child.send_signal(signal.SIGTERM)
            assert child.wait(15) == 0


def test_without_redis_it_ends_with_one_line_and_4(s3_server: S3Server) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        url = f"redis://:hidden@127.0.0.1:{port}/0"
        with process(environment(url, s3_server), "--port", "0") as child:
            out, err = child.communicate(timeout=40)
    assert child.returncode == 4
    assert out == ""
    assert len(err.splitlines()) == 1
    assert str(port) in err
    assert "hidden" not in err


def test_a_taken_port_and_a_bad_setting_end_with_2(redis_url: str, s3_server: S3Server) -> None:
    env = environment(redis_url, s3_server)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with process(env, "--port", port) as child:
            _, err = child.communicate(timeout=40)
    assert (child.returncode, len(err.splitlines())) == (2, 1)
    assert port in err
    with process(env | {"SAFELIGHT_LEASE_S": "never"}) as child:
        _, err = child.communicate(timeout=40)
    assert (child.returncode, len(err.splitlines())) == (2, 1)
    assert "SAFELIGHT_LEASE_S" in err

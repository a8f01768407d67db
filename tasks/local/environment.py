"""The environment of a local stack: what its children get, and the file that another shell sources."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from tasks.settings import Settings

ENV_FILE = Path(".local/env")
_BUCKET = "safelight"
_LOOPBACK = "127.0.0.1,localhost"
#: Would send a child to somebody's real account.
_FOREIGN = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "SAFELIGHT_S3_PREFIX")


def stack_exports(
    redis_url: str, s3_url: str, access_key: str, secret_key: str, api_url: str | None = None
) -> dict[str, str]:
    """The variables that point a client, a worker or the API at this stack; and programs over HTTP, at its API."""
    return {
        **({} if api_url is None else {"SAFELIGHT_URL": api_url}),
        "SAFELIGHT_REDIS_URL": redis_url,
        "SAFELIGHT_KEY_PREFIX": "safelight:",
        "SAFELIGHT_S3_ENDPOINT_URL": s3_url,
        "SAFELIGHT_S3_PUBLIC_ENDPOINT_URL": s3_url,
        "SAFELIGHT_S3_BUCKET": _BUCKET,
        # Nobody else uses this Redis, so plain `send_task` from any Celery app may work without naming a queue.
        "SAFELIGHT_SUBMIT_QUEUES": "safelight.submit,celery",
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": secret_key,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def child_environment(exports: Mapping[str, str], *, inherits_settings: bool) -> dict[str, str]:
    """The caller's environment with the stack's on top, with or without the caller's own `SAFELIGHT_*`.

    Loopback never goes through a proxy.
    """
    env = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    if not inherits_settings:
        env = {name: value for name, value in env.items() if not name.startswith("SAFELIGHT_")}
    env |= exports
    for name in ("NO_PROXY", "no_proxy"):
        env[name] = f"{env[name]},{_LOOPBACK}" if env.get(name) else _LOOPBACK
    env.setdefault("SAFELIGHT_DRAIN_GRACE_S", "5")
    # OpenMP's threads wait for each other after every layer: one that shares its core with another part of this stack,
    # or with anything else, holds up all (measured on 2 busy cores: 50 s with 2 threads, 3.5 s with 1).
    env.setdefault("OMP_NUM_THREADS", str(min(8, max(1, (os.cpu_count() or 2) // 2))))
    env["PYTHONUNBUFFERED"] = "1"
    return env


def stack_settings(exports: Mapping[str, str]) -> Settings:
    """What `read_settings` gives in a shell that sourced the exports; the process's environment stays as it is."""
    ours = {
        name.removeprefix("SAFELIGHT_").lower(): value
        for name, value in exports.items()
        if name.startswith("SAFELIGHT_")
    }
    return Settings.model_validate(ours)


def write_env_file(path: Path, exports: Mapping[str, str]) -> None:
    """A file to `source`. Readable by its owner only: it holds the S3 key."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write("# Written by a local stack, removed when it ends. In another shell: source this file.\n")
        file.write("# For the `safelight` command, for Python with this environment, and for any Celery producer.\n")
        file.write(f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"\n')
        file.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in exports.items())


def read_env_file(path: Path) -> dict[str, str]:
    """The variables of a file that `write_env_file` wrote; other lines are passed over."""
    variables = {}
    for line in path.read_text("utf-8").splitlines():
        words = shlex.split(line, comments=True)
        if len(words) == 2 and words[0] == "export" and "=" in words[1]:
            name, _, value = words[1].partition("=")
            if name != "PATH":  # for shells only, which put theirs behind it
                variables[name] = value
    return variables

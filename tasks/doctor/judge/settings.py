"""What the environment says that nobody reads."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from tasks.doctor.finding import Finding, fail, ok, warn
from tasks.settings import Settings

_PREFIX = "SAFELIGHT_"
#: Read by the compose files and the command line.
_OTHERS = ("SAFELIGHT_GPU", "SAFELIGHT_API_URL")


def judge_settings(error: str | None, env: Mapping[str, str]) -> Iterator[Finding]:
    """`error`: why the settings cannot be read."""
    names = [f"{_PREFIX}{name.upper()}" for name in Settings.model_fields]
    given = sorted(name for name in env if name.upper().startswith(_PREFIX))
    if error is not None:
        variable, _, reason = error.partition(": ")
        yield fail("settings.values", error if reason else f"{variable} is wrong", f"correct or unset {variable}")
    else:
        shown = ", ".join(name.removeprefix(_PREFIX) for name in given if name.upper() in names)
        yield ok("settings.values", f"set here: {shown}" if shown else "all are at their defaults")
    unknown = [name for name in given if name.upper() not in (*names, *_OTHERS)]
    for name in unknown:
        near = difflib.get_close_matches(name.upper(), names, n=1, cutoff=0.7)
        remedy = f"rename it to {near[0]}" if near else "unset it; the settings are listed in docs/operations.md"
        yield warn("settings.names", f"{name} is no setting, and nobody reads it", remedy)
    if not env.get("SAFELIGHT_S3_ENDPOINT_URL"):
        for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
            if env.get(name):
                remedy = f"unset it, or set SAFELIGHT_S3_ENDPOINT_URL={env[name]}, which also gives path style"
                yield warn("settings.endpoint", f"{name} sends boto3 elsewhere than our settings say", remedy)
                return

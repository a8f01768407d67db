"""What the environment says that nobody reads."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from tasks.artifacts import object_key
from tasks.doctor.finding import Finding, fail, ok, warn
from tasks.input_places import InputPlaces
from tasks.settings import Settings

_PREFIX = "SAFELIGHT_"
#: Read by the compose files and the command line.
_OTHERS = ("SAFELIGHT_GPU", "SAFELIGHT_URL")


#: Of values whose form is not seen from the error.
_FORMS = {
    "SAFELIGHT_REDIS_URL": "write redis://, rediss://, unix:// or sentinel://, as in docs/redis.md",
    "SAFELIGHT_RATE_LIMIT": "write it as 60/minute, with second, minute, hour or day",
    "SAFELIGHT_CORS_ORIGINS": "write it as https://app.example, separated by commas and without a path",
    "SAFELIGHT_INPUT_BUCKETS": "write it as bucket or bucket/folder, separated by commas and without s3://",
}


def judge_settings(settings: Settings | str, env: Mapping[str, str]) -> Iterator[Finding]:
    """A text instead of settings: why they cannot be read."""
    names = [f"{_PREFIX}{name.upper()}" for name in Settings.model_fields]
    given = sorted(name for name in env if name.upper().startswith(_PREFIX))
    if isinstance(settings, str):
        variable, _, reason = settings.partition(": ")
        remedy = _FORMS.get(variable, f"correct or unset {variable}")
        yield fail("settings.values", settings if reason else f"{variable} is wrong", remedy)
    else:
        shown = ", ".join(name for name in given if name.upper() in names)
        yield ok("settings.values", f"set here: {shown}" if shown else "all are at their defaults")
    unknown = [name for name in given if name.upper() not in (*names, *_OTHERS)]
    for name in unknown:
        near = difflib.get_close_matches(name.upper(), names, n=1, cutoff=0.7)
        remedy = f"rename it to {near[0]}" if near else "unset it; the settings are listed in docs/operations.md"
        yield warn("settings.names", f"{name} is no setting, and nobody reads it", remedy)
    if isinstance(settings, Settings):
        yield from _together(settings)
    if not env.get("SAFELIGHT_S3_ENDPOINT_URL"):
        for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
            if env.get(name):
                remedy = f"unset it, or set SAFELIGHT_S3_ENDPOINT_URL={env[name]}, which also gives path style"
                yield warn("settings.endpoint", f"{name} sends boto3 elsewhere than our settings say", remedy)
                return


def _together(settings: Settings) -> Iterator[Finding]:
    """What follows from two settings, and is easily overlooked."""
    if settings.rate_limit and not settings.api_keys:
        found = f"{settings.rate_limit} for all callers together: without SAFELIGHT_API_KEYS they have one name"
        yield warn("settings.rate_limit", found, "give callers keys with names: SAFELIGHT_API_KEYS=NAME:KEY,…")
    elif settings.rate_limit:
        yield ok("settings.rate_limit", f"{settings.rate_limit} for each name in SAFELIGHT_API_KEYS")
    if settings.input_buckets:
        places = InputPlaces.of(settings)
        an_output = object_key(settings.s3_prefix, "", "job", 1, 0, "png")
        has_outputs = places.allow(settings.s3_bucket, an_output)
        outputs = "" if has_outputs else f"; outputs, in {settings.s3_bucket}, cannot be inputs again"
        yield ok("settings.inputs", f"s3:// inputs come from {places}{outputs}")

"""Settings come from the environment; a bad one names its variable and never shows its value."""

from __future__ import annotations

import os

import pytest
from pydantic import ValidationError

from tasks.errors import ConfigError
from tasks.settings import Settings, read_settings


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SAFELIGHT_")]:
        monkeypatch.delenv(name)


def test_defaults() -> None:
    settings = read_settings()
    assert (settings.key_prefix, settings.lease_s, settings.max_attempts, settings.result_ttl_s) == (
        "safelight:",
        15.0,
        3,
        604_800.0,
    )


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT_REDIS_URL", "rediss://user:p%40ss@host:6380/2")
    monkeypatch.setenv("SAFELIGHT_LEASE_S", "30")
    monkeypatch.setenv("SAFELIGHT_ALLOW_PRIVATE_URLS", "true")
    settings = read_settings()
    assert (settings.redis_url[-6:], settings.lease_s, settings.allow_private_urls) == ("6380/2", 30, True)


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODELS", "API_KEYS", "S3_ENDPOINT_URL", "LEASE_S"):
        monkeypatch.setenv(f"SAFELIGHT_{name}", "")
    settings = read_settings()
    assert (settings.models, settings.api_keys, settings.s3_endpoint_url, settings.lease_s) == (None, None, None, 15.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REDIS_URL", "http://secret@host"),
        ("LEASE_S", "secret"),
        ("LEASE_S", "0.5"),
        ("MAX_ATTEMPTS", "0"),
        ("MAX_QUEUED", "-1"),
        ("RESULT_TTL_S", "1"),
        ("RESULT_TTL_S", "inf"),
        ("RESULT_TTL_S", "1e17"),
        ("DEAD_LETTER_TTL_S", "1e17"),
        ("LOG_LEVEL", "secret"),
        ("S3_BUCKET", "ab"),
        ("ALLOW_PRIVATE_URLS", "secret"),
    ],
)
def test_a_bad_value_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"SAFELIGHT_{name}", value)
    with pytest.raises(ConfigError, match=f"^SAFELIGHT_{name}: ") as caught:
        read_settings()
    assert "secret" not in str(caught.value)


def test_secrets_do_not_print(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT_API_KEYS", "token-1,token-2")
    assert "token" not in repr(read_settings())


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().lease_s = 3  # type: ignore[misc]

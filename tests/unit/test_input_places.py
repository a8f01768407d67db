"""Which `s3://` inputs a producer may name: the own bucket, or what the operator lists, and nothing beside it."""

from __future__ import annotations

import pytest

from tasks.errors import ConfigError
from tasks.input_places import InputPlaces
from tasks.settings import Settings, read_settings

LISTED = InputPlaces.parse("assets/public/ , own,deep/a/b", own="own")


@pytest.mark.parametrize(("bucket", "key"), [("own", "a.png"), ("assets", "public/a.png"), ("deep", "a/b/c/d")])
def test_what_is_listed_may_be_read(bucket: str, key: str) -> None:
    assert LISTED.allow(bucket, key)


@pytest.mark.parametrize(
    ("bucket", "key"),
    [
        ("other", "a.png"),
        ("own2", "a.png"),
        ("ow", "n/a.png"),
        ("assets", "secret.png"),
        ("assets", "public"),
        ("assets", "publicity/a.png"),
        ("assets", "public/../secret.png"),
        ("assets", "public/./../secret.png"),
        ("assets", "public\\..\\secret.png"),
        ("assets", "/public/a.png"),
        ("own", "../other/secret"),
        ("own", "a/.."),
        ("deep", "a/c"),
    ],
)
def test_everything_else_may_not(bucket: str, key: str) -> None:
    assert not LISTED.allow(bucket, key)


def test_what_the_api_keeps_for_a_request_may_be_read_whatever_is_listed() -> None:
    settings = Settings(s3_bucket="own", s3_prefix="prod", input_buckets="assets/public/")
    places = InputPlaces.of(settings)
    assert places.allow("own", "prod/inputs/0a1b") and not places.allow("own", "prod/0.png")


def test_without_a_list_it_is_the_own_bucket_alone() -> None:
    places = InputPlaces.parse("", own="own")
    assert places.allow("own", "a/b") and not places.allow("assets", "public/a.png")
    assert str(places) == "s3://own/"


@pytest.mark.parametrize("setting", ["a", "UPPER", "s3://own", "own,", ",", "own//\x00", "own other"])
def test_a_wrong_list_stops_the_start(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT_INPUT_BUCKETS", setting.replace("\x00", "\x01"))
    with pytest.raises(ConfigError, match="SAFELIGHT_INPUT_BUCKETS"):
        read_settings()

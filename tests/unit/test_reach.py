"""Addresses that no worker would ever ask are refused before there is a job, without a look at any name server."""

from __future__ import annotations

import socket

import pytest

from tasks.errors import InvalidRequest
from tasks.models import load_models
from tasks.reach import unreachable
from tasks.request import GenerationRequest
from tasks.settings import Settings
from tasks.submission import new_job

SETTINGS = Settings(s3_bucket="bucket")
OPEN = SETTINGS.model_copy(update={"allow_private_urls": True})


def fields(settings: Settings, **given: str) -> list[str]:
    return [fault.field for fault in unreachable(GenerationRequest(prompt="a", **given), settings)]  # type: ignore[arg-type]


NEVER = [
    "localhost",
    "a.LOCALHOST.",
    "127.0.0.1",
    "10.1.2.3",
    "169.254.169.254",
    "[::1]",
    "2130706433",
    "0x7f.1",
    "[fd00::1]",
]


@pytest.mark.parametrize("host", NEVER)
def test_private_literals_are_refused_unless_they_are_allowed(host: str) -> None:
    assert fields(SETTINGS, image=f"https://{host}/a.png") == ["image"]
    assert fields(SETTINGS, webhook_url=f"http://{host}:81/hook") == ["webhook_url"]
    assert fields(OPEN, image=f"http://{host}/a.png", webhook_url=f"http://{host}/hook") == []


@pytest.mark.parametrize("url", ["https://", "https://[::1", "https://h:99999/"])
def test_what_is_no_url_of_a_host_is_refused_always(url: str) -> None:
    assert fields(OPEN, image=url) == ["image"]


def test_images_need_https_and_our_bucket() -> None:
    assert fields(SETTINGS, image="http://a.example/a.png", mask_image="http://a.example/m.png") == [
        "image",
        "mask_image",
    ]
    assert fields(SETTINGS, image="s3://other/a.png", mask_image="s3://bucket-2/a") == ["image", "mask_image"]
    assert fields(SETTINGS, image="s3://bucket/a.png", mask_image="data:,") == []
    assert fields(SETTINGS, image="https://a.example/a.png", webhook_url="http://a.example/hook") == []


def test_no_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("a name was looked up"))
    assert fields(SETTINGS, image="https://never.invalid/", webhook_url="https://never.invalid/") == []


def test_listed_buckets_are_reachable() -> None:
    settings = SETTINGS.model_copy(update={"input_buckets": "assets/public/"})
    assert fields(settings, image="s3://assets/public/a.png", mask_image="s3://bucket/inputs/a") == []
    assert fields(settings, image="s3://assets/a.png", mask_image="s3://bucket/a") == ["image", "mask_image"]


def test_a_submission_with_settings_is_held_to_them() -> None:
    request = {"prompt": "a", "image": "http://a.example/a.png"}
    with pytest.raises(InvalidRequest, match="image"):
        new_job(request, load_models(None), SETTINGS)
    assert new_job(request, load_models(None)).request.image == request["image"]

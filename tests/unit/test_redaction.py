"""What an operator is shown never carries a secret, and never grows without bound."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from tasks.redaction import MAX_TRACEBACK, Redactor, kept_traceback, mask, secrets_of
from tasks.settings import Settings

PASSWORD = "p4ss/w0rd"


@pytest.mark.parametrize(
    "text",
    [
        f"cannot reach redis://:{PASSWORD}@10.0.0.1:6379/0",
        f"GET https://user:{PASSWORD}@example.org/a.png failed",
        f"https://s3/b/k?X-Amz-Credential=AKIA/2026&X-Amz-Signature={PASSWORD}&x=1",
        f"Authorization: Bearer {PASSWORD}",
        f"login(user='u', password='{PASSWORD}')",
        f'{{"api_key": "{PASSWORD}"}}',
        f"AWS_SECRET_ACCESS_KEY={PASSWORD}",
    ],
)
def test_secrets_are_known_by_their_shape(text: str) -> None:
    assert PASSWORD not in mask(text)
    assert "***" in mask(text)


@pytest.mark.parametrize(
    "text",
    [
        'File "/app/worker/generate.py", line 17, in _render\n    raise ValueError(token_ids)',
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "s3://bucket/key/0.png: 503 from http://10.0.0.1:8333",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert mask(text) == text


def test_pictures_are_cut_and_hub_tokens_hidden() -> None:
    assert mask("in data:image/png;base64,AAAABBBB==") == "in data:image/png;base64,..."
    assert "hf_" not in mask("hf_abcdefghijklmnopqrstuvwxyz")


def test_the_values_of_this_process_are_hidden_wherever_they_stand() -> None:
    settings = Settings(
        redis_url="redis://:hunter2%40home@r:6379/0", webhook_secret=SecretStr("first-one second-one"), api_keys=None
    )
    environ = {"AWS_SECRET_ACCESS_KEY": "aws-secret", "HF_TOKEN": "hub-token"}
    told = {"HOME": "/home/me", "AWS_ACCESS_KEY_ID": "safelight"}
    secrets = secrets_of(settings, environ | told)
    text = "hunter2@home hunter2%40home first-one second-one aws-secret hub-token /home/me safelight"
    assert Redactor(secrets)(text).split() == ["***"] * 6 + list(told.values())


def test_a_traceback_keeps_its_end() -> None:
    text = "\n".join(f"line {number}" for number in range(5_000)) + "\nValueError: last"
    kept = kept_traceback(text, Redactor())
    assert len(kept) <= MAX_TRACEBACK
    assert kept.startswith("...\nline ") and kept.endswith("\nValueError: last")
    assert kept_traceback("a\ud800", Redactor()) == "a?"
    assert len(kept_traceback("x" * 20_000, Redactor())) <= MAX_TRACEBACK

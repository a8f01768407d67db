"""Keeps secrets out of text that people read: logs, tracebacks, reprs, error messages of jobs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from tasks.settings import Settings

HIDDEN = "***"
#: A literal that is shorter would hide ordinary words.
_MIN_LITERAL = 6
_MAX_DATA_URI = 64
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # The whole query of a presigned URL, whoever signed it.
    (re.compile(r"\?[^\s\"'<>]*(?:x-amz-|x-goog-|signature=|sig=|token=)[^\s\"'<>]*", re.IGNORECASE), "?" + HIDDEN),
    (re.compile(r"(\bbearer\s+)[^\s\"',]+", re.IGNORECASE), r"\g<1>" + HIDDEN),
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@\"']*:[^\s/\"']*@", re.IGNORECASE), r"\g<1>" + HIDDEN + "@"),
    (re.compile(r"whsec_[A-Za-z0-9+/=_-]+"), "whsec_" + HIDDEN),
)


def mask(text: str) -> str:
    """The text without what looks like a secret: signed queries, bearer tokens, logins in URLs, signing keys."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def shown_uri(uri: str) -> str:
    """A URI that a producer gave, for people: without login and query, and pictures in it cut short."""
    if uri.startswith("data:"):
        return uri if len(uri) <= _MAX_DATA_URI else uri[:_MAX_DATA_URI].partition(",")[0] + ",..."
    path, mark, _ = mask(uri).partition("?")
    return path + (mark and "?" + HIDDEN)


class Redactor:
    """`mask`, and the secrets of this process wherever they stand."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        literals = {secret for secret in secrets if len(secret) >= _MIN_LITERAL}
        words = sorted(literals, key=len, reverse=True)
        self._literals = re.compile("|".join(map(re.escape, words))) if words else None

    def __call__(self, text: str) -> str:
        return mask(text if self._literals is None else self._literals.sub(HIDDEN, text))


def secrets_of(settings: Settings) -> list[str]:
    """Every secret that this process was given, in each spelling that it may be met in."""
    given = [os.environ.get(name, "") for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN")]
    for secret, separator in ((settings.webhook_secret, " "), (settings.api_keys, ",")):
        text = "" if secret is None else secret.get_secret_value()
        given += [text, *(part.strip() for part in text.split(separator))]
    for url in settings.redis_url.split(";"):
        login = url.partition("://")[2].rpartition("@")[0]
        password = login.partition(":")[2]
        given += [password, unquote(password)]
    return [secret for secret in given if secret]

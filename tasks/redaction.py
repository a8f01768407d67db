"""Keeps secrets out of text that people read: logs, tracebacks, reprs, error messages of jobs.

Knows their usual shapes, and the values that it is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from tasks.settings import Settings

HIDDEN = "***"
#: Characters of one traceback; its end says most.
MAX_TRACEBACK = 8_000
#: A value that is shorter would hide ordinary words.
_MIN_SECRET = 6
_MAX_DATA_URI = 64
_SECRET_VARIABLE = re.compile(r"SECRET|TOKEN|PASSWORD|PASSWD|API_KEY|ACCESS_KEY(?!_ID)|CREDENTIAL", re.I)
_SECRET_NAME = r"(?:secret|token|password|passwd|api[_-]?key|access[_-]?key|credential|signature)"  # nosec B105 # names
_SHAPES: tuple[tuple[re.Pattern[str], str], ...] = (
    # The whole query of a presigned URL, whoever signed it.
    (re.compile(r"\?[^\s\"'<>]*(?:x-amz-|x-goog-|signature=|sig=|token=)[^\s\"'<>]*", re.IGNORECASE), "?" + HIDDEN),
    # A password may hold a slash; a path that holds an @ goes with it.
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s@'\"]*@", re.IGNORECASE), rf"\g<1>{HIDDEN}@"),
    (re.compile(r"(\b(?:Bearer|Basic)\s+)[^\s\"',]{6,}", re.IGNORECASE), rf"\g<1>{HIDDEN}"),
    (re.compile(rf"({_SECRET_NAME}\w*[\"']?\s*[=:]\s*[\"']?)[^\s\"'&,)}}]{{6,}}", re.IGNORECASE), rf"\g<1>{HIDDEN}"),
    (re.compile(r"\bwhsec_[A-Za-z0-9+/=_-]+"), f"whsec_{HIDDEN}"),
    (re.compile(r"\b(?:hf_|AKIA|ASIA)[A-Za-z0-9+/=]{12,}"), HIDDEN),
    (re.compile(r"(\bdata:[\w.+/-]*;base64,)[A-Za-z0-9+/=]+"), r"\g<1>..."),
)


def mask(text: str) -> str:
    """The text without what looks like a secret: signed queries, tokens, logins in URLs, keys beside their names."""
    for shape, replacement in _SHAPES:
        text = shape.sub(replacement, text)
    return text


def shown_uri(uri: str) -> str:
    """A URI that a producer gave, for people: without login and query, and pictures in it cut short."""
    if uri.startswith("data:"):
        return uri if len(uri) <= _MAX_DATA_URI else uri[:_MAX_DATA_URI].partition(",")[0] + ",..."
    path, mark, _ = mask(uri).partition("?")
    return path + (mark and "?" + HIDDEN)


def shown_origin(url: str) -> str:
    """Scheme and host of a URL whose path may be a secret too."""
    scheme, separator, rest = url.partition("://")
    host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    return f"{scheme}{separator}{host}/{HIDDEN}"


class Redactor:
    """`mask`, and the secrets of this process wherever they stand."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        words = sorted({secret for secret in secrets if len(secret) >= _MIN_SECRET}, key=len, reverse=True)
        self._words = re.compile("|".join(map(re.escape, words))) if words else None

    def __call__(self, text: str) -> str:
        return mask(text if self._words is None else self._words.sub(HIDDEN, text))


def secrets_of(settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What must never be told, in each spelling that it may be met in, longest first: the passwords of Redis, keys of
    settings, variables that are called like one."""
    found = {value for name, value in environ.items() if _SECRET_VARIABLE.search(name)}
    for setting in (settings.webhook_secret, settings.api_keys):
        if setting is not None:
            for entry in re.split(r"[\s,]+", setting.get_secret_value()):
                found.update((entry, entry.rpartition(":")[2]))
    for url in settings.redis_url.split(";"):
        password = url.partition("://")[2].rpartition("@")[0].partition(":")[2]
        found.update((password, unquote(password)))
    return tuple(sorted((secret for secret in found if len(secret) >= _MIN_SECRET), key=len, reverse=True))


def kept_traceback(text: str, redact: Redactor) -> str:
    """Without secrets, and its last `MAX_TRACEBACK` characters, from the start of a line."""
    text = redact(text).encode("utf-8", "replace").decode("utf-8").rstrip()
    if len(text) <= MAX_TRACEBACK:
        return text
    end = text[-MAX_TRACEBACK + 4 :]
    return "...\n" + (end.partition("\n")[2] or end)

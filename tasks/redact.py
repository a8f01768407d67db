"""Takes secrets out of text that is kept for an operator. Knows their usual shapes, and the values that it is given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote, urlsplit

from tasks.settings import Settings

#: Characters of one traceback; its end says most.
MAX_TRACEBACK = 8_000
HIDDEN = "***"
_MIN_SECRET = 6
_SECRET_VARIABLE = re.compile(r"SECRET|TOKEN|PASSWORD|PASSWD|API_KEY|ACCESS_KEY|CREDENTIAL", re.IGNORECASE)
_SECRET_NAME = r"(?:secret|token|password|passwd|api[_-]?key|access[_-]?key|credential|signature)"
_SHAPES = (
    # A password may hold a slash; a path that holds an @ goes with it.
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s@'\"]*@", re.IGNORECASE), r"\1***@"),
    (re.compile(r"(\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE), r"\1***"),
    (re.compile(rf"({_SECRET_NAME}\w*[\"']?\s*[=:]\s*[\"']?)[^\s\"'&,)}}]+", re.IGNORECASE), r"\1***"),
    (re.compile(r"\b(?:hf_|whsec_|AKIA|ASIA)[A-Za-z0-9+/=]{12,}"), HIDDEN),
    (re.compile(r"(\bdata:[\w.+/-]*;base64,)[A-Za-z0-9+/=]+"), r"\1..."),
)


def secrets_of(settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What must never be told: the password of Redis, keys of settings, variables that are called like one."""
    found = {value for name, value in environ.items() if _SECRET_VARIABLE.search(name)}
    for setting in (settings.webhook_secret, settings.api_keys):
        if setting is not None:
            found.update(re.split(r"[\s,]+", setting.get_secret_value()))
    for url in settings.redis_url.split(";"):
        password = _password(url)
        found.update((password, unquote(password)))
    return tuple(sorted((secret for secret in found if len(secret) >= _MIN_SECRET), key=len, reverse=True))


def _password(url: str) -> str:
    try:
        return urlsplit(url).password or ""
    except ValueError:
        return ""


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    for shape, replacement in _SHAPES:
        text = shape.sub(replacement, text)
    return text


def kept_traceback(text: str, secrets: Iterable[str] = ()) -> str:
    """Without secrets, and its last `MAX_TRACEBACK` characters, from the start of a line."""
    text = redacted(text, secrets).encode("utf-8", "replace").decode("utf-8").rstrip()
    if len(text) <= MAX_TRACEBACK:
        return text
    end = text[-MAX_TRACEBACK + 4 :]
    return "...\n" + (end.partition("\n")[2] or end)

"""`SAFELIGHT_REDIS_URL` as a record: hosts, login, database, TLS. Owns its grammar; opens nothing.

redis://[user:password@]host[:port][/db]                                 rediss://: the same over TLS
unix://[user:password@]/path/of.sock[?db=N]
sentinel://[user:password@]h1[:port][;sentinel://h2[:port]…][/db]?master_name=NAME

Parameters have the names of redis-py: `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, … for `rediss://`; with
`sentinel://` one of them turns TLS on, for the sentinels too, which may have a `sentinel_username` and a
`sentinel_password` of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tasks.errors import ConfigError

VARIABLE = "SAFELIGHT_REDIS_URL"
Host = tuple[str, int]
TlsOption = str | bool

TLS_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
_TLS = {*TLS_FILES, "ssl_password", "ssl_cert_reqs", "ssl_check_hostname"}
_PARAMETERS = {
    "redis": {"db"},
    "rediss": {"db", *_TLS},
    "unix": {"db"},
    "sentinel": {"db", "master_name", "sentinel_username", "sentinel_password", *_TLS},
}
_PORTS = {"redis": 6379, "rediss": 6379, "unix": 0, "sentinel": 26_379}
_URL = re.compile(r"(?P<scheme>[a-z]+)://(?:(?P<login>.*)@)?(?P<rest>[^@]*)", re.DOTALL)
_ENCODED = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")


@dataclass(frozen=True, slots=True)
class RedisAddress:
    kind: Literal["tcp", "unix", "sentinel"]
    #: One, or the sentinels; none for a socket.
    hosts: tuple[Host, ...] = ()
    path: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    #: The name that sentinels know the primary by.
    master: str = ""
    #: A login at the sentinels.
    sentinel_login: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: redis-py's `ssl_…` options; None: no TLS.
    tls: Mapping[str, TlsOption] | None = field(default=None, repr=False)


def parse_address(url: str) -> RedisAddress:
    """Raises `ConfigError` that names the wrong part and never quotes the URL."""
    scheme = url.partition("://")[0]
    if scheme not in _PARAMETERS:
        raise _wrong(f"begins with one of {', '.join(f'{name}://' for name in _PARAMETERS)}")
    try:
        parts = [urlsplit(canonical_url(part)) for part in _split(url)]
        hosts = tuple((part.hostname or "localhost", part.port or _PORTS[scheme]) for part in parts)
    except ValueError:
        raise _wrong("has a host or port that cannot be read; percent-encode user and password") from None
    given = _parameters(scheme, parts[-1].query)
    db = _database(given.get("db") or ("" if scheme == "unix" else parts[-1].path.strip("/")) or "0")
    username, password = (unquote(part) if part else None for part in (parts[0].username, parts[0].password))
    tls = _tls({name: value for name, value in given.items() if name in _TLS})
    if scheme == "unix":
        return RedisAddress("unix", path=unquote(parts[0].path), db=db, username=username, password=password)
    if scheme != "sentinel":
        return RedisAddress("tcp", hosts, "", db, username, password, tls=tls if scheme == "rediss" else None)
    if "master_name" not in given:
        raise _wrong("a sentinel:// URL ends in ?master_name=NAME")
    login = {name: given[f"sentinel_{name}"] for name in ("username", "password") if f"sentinel_{name}" in given}
    uses_tls = bool(given.keys() & _TLS)
    return RedisAddress(
        "sentinel", hosts, "", db, username, password, given["master_name"], login, tls if uses_tls else None
    )


def canonical_url(url: str) -> str:
    """The URL with a login that was pasted raw (`p@ss:/#`) percent-encoded; parts that are valid already stay."""
    match = _URL.fullmatch(url)
    if match is None or match["login"] is None:
        return url
    user, colon, password = match["login"].partition(":")
    return f"{match['scheme']}://{_encoded(user)}{colon}{_encoded(password)}@{match['rest']}"


def _encoded(text: str) -> str:
    return text if _ENCODED.fullmatch(text) else quote(text, safe="")


def _split(url: str) -> list[str]:
    """The URLs of several sentinels; any other `;` belongs to a password."""
    return re.split(r";(?=sentinel://)", url) if url.startswith("sentinel://") else [url]


def _parameters(scheme: str, query: str) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name in given:
        if name in _TLS and scheme in ("redis", "unix"):
            raise _wrong(f"{name} needs TLS: begin the URL with rediss://")
        if name not in _PARAMETERS[scheme]:
            raise _wrong(f"{name} is no parameter of {scheme}://; known: {', '.join(sorted(_PARAMETERS[scheme]))}")
    return given


def _database(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise _wrong("the database is a number, as in /0")
    return int(text)


def _tls(given: Mapping[str, str]) -> dict[str, TlsOption]:
    """Strict unless told otherwise: a certificate that is trusted and made for this host."""
    level = given.get("ssl_cert_reqs", "required").lower().removeprefix("cert_")
    if level not in ("required", "optional", "none"):
        raise _wrong("ssl_cert_reqs is one of required, optional, none")
    named = given.get("ssl_check_hostname", "true").lower() not in ("false", "0", "no")
    files = {name: value for name, value in given.items() if name in TLS_FILES or name == "ssl_password"}
    return {"ssl_cert_reqs": level, "ssl_check_hostname": named and level != "none", **files}


def _wrong(what: str) -> ConfigError:
    return ConfigError(f"{VARIABLE}: {what}")

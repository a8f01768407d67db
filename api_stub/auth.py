"""Who calls: optional bearer tokens, each with a name. Without `SAFELIGHT_API_KEYS` everybody is `default`."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import SecretStr

from api_stub.problems import ProblemError
from tasks.errors import ConfigError
from tasks.quotas import DEFAULT_TENANT, TENANT

_HASHED = "sha256"
_bearer = HTTPBearer(auto_error=False, description="One of `SAFELIGHT_API_KEYS`; not needed when that is unset.")


class Keys:
    """The accepted keys as digests, each with the name of its tenant; two keys of one name are one tenant."""

    def __init__(self, setting: SecretStr | None) -> None:
        """Raises `ConfigError`, which tells the place of a wrong entry and never its text."""
        text = setting.get_secret_value() if setting is not None else ""
        entries = [entry.strip() for entry in text.split(",") if entry.strip()]
        if text and not entries:  # somebody meant to have keys: an API that is open then is no mistake to make silently
            raise ConfigError("SAFELIGHT_API_KEYS: has no key in it; unset it for an API that is open to everybody")
        self._keys = [_parsed(entry, number) for number, entry in enumerate(entries, 1)]

    @property
    def needed(self) -> bool:
        return bool(self._keys)

    def tenant(self, token: str) -> str | None:
        """Whose key it is; takes as long for a wrong one as for any other."""
        given = hashlib.sha256(token.encode("latin-1", "replace")).digest()  # how the bytes of a header were decoded
        found = None
        for digest, name in self._keys:
            if hmac.compare_digest(given, digest):  # no early exit
                found = name
        return found


def _parsed(entry: str, number: int) -> tuple[bytes, str]:
    """`KEY`, `NAME:KEY`, `sha256:HEX` or `NAME:sha256:HEX`."""
    name, colon, key = entry.partition(":")
    if not colon or name == _HASHED:
        name, key = DEFAULT_TENANT, entry
    if not TENANT.fullmatch(name):
        raise ConfigError(f"SAFELIGHT_API_KEYS: entry {number}: a name is 1 to 64 of A-Z, a-z, 0-9, '_' and '-'")
    kind, colon, text = key.partition(":")
    if kind != _HASHED or not colon:
        if not key:
            raise ConfigError(f"SAFELIGHT_API_KEYS: entry {number}: the key after the name is missing")
        return hashlib.sha256(key.encode()).digest(), name
    if not re.fullmatch(r"[0-9A-Fa-f]{64}", text):
        raise ConfigError(f"SAFELIGHT_API_KEYS: entry {number}: what follows sha256: is not 64 hexadecimal digits")
    return bytes.fromhex(text), name


async def require_token(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> None:
    """A dependency: notes the caller's tenant as `request.state.tenant`. Raises 401 unless it holds a key."""
    keys: Keys = request.app.state.keys
    tenant: str | None = DEFAULT_TENANT
    if keys.needed:
        tenant = keys.tenant(credentials.credentials) if credentials is not None else None
    if tenant is None:
        detail = "the token is not known" if credentials else "send Authorization: Bearer TOKEN"
        raise ProblemError(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})
    request.state.tenant = tenant

"""Optional bearer tokens. Without `SAFELIGHT_API_KEYS` everybody may call."""

from __future__ import annotations

import hmac
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import SecretStr

from api_stub.problems import ProblemError

_bearer = HTTPBearer(auto_error=False, description="One of `SAFELIGHT_API_KEYS`; not needed when that is unset.")


class Keys:
    """The accepted tokens, compared in constant time."""

    def __init__(self, setting: SecretStr | None) -> None:
        text = setting.get_secret_value() if setting is not None else ""
        self._keys = [key.strip().encode() for key in text.split(",") if key.strip()]

    @property
    def needed(self) -> bool:
        return bool(self._keys)

    def accept(self, token: str) -> bool:
        given = token.encode("latin-1", "replace")  # how the bytes of a header were decoded
        matches = [hmac.compare_digest(given, key) for key in self._keys]  # no early exit
        return any(matches)


async def require_token(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> None:
    """A dependency: raises 401 unless the caller holds a key, or no key is set."""
    keys: Keys = request.app.state.keys
    if not keys.needed or (credentials is not None and keys.accept(credentials.credentials)):
        return
    detail = "the token is not known" if credentials else "send Authorization: Bearer TOKEN"
    raise ProblemError(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})

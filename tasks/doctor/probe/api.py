"""Facts of an API that may run: its probes, its version, its models, the workers that it sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from tasks.settings import Settings


@dataclass(frozen=True, slots=True)
class ApiFacts:
    url: str
    #: Why there is no answer; the other fields are empty then.
    error: str = ""
    #: Whether what answered is a Safelight.
    is_ours: bool = False
    version: str | None = None
    ready: Mapping[str, str] = field(default_factory=dict)
    #: 401 and the like stand for the answers that were withheld.
    withheld: int = 0
    models: Mapping[str, Mapping[str, Any]] | None = None
    workers: frozenset[str] | None = None


def ask_api(url: str, settings: Settings, limit_s: float) -> ApiFacts:
    import httpx

    token = _token(settings.api_keys)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with httpx.Client(base_url=url, timeout=limit_s, headers=headers) as client:
            alive = _json(client.get("/healthz"))
            if alive.get("status") != "alive":
                return ApiFacts(url)
            ready, models, workers = (client.get(path) for path in ("/readyz", "/v1/models", "/v1/workers"))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return ApiFacts(url, error=str(error) or type(error).__name__)
    withheld = next((reply.status_code for reply in (models, workers) if reply.status_code in (401, 403)), 0)
    return ApiFacts(
        url,
        is_ours=True,
        version=alive.get("version"),
        ready=_json(ready).get("checks", {}),
        withheld=withheld,
        models={each["name"]: each for each in _json(models)["models"]} if models.status_code == 200 else None,
        workers=frozenset(each["name"] for each in _json(workers)["workers"]) if workers.status_code == 200 else None,
    )


def _token(keys: SecretStr | None) -> str | None:
    """The first key of `KEY`, `NAME:KEY`, … that is not a digest alone, which opens nothing."""
    for entry in keys.get_secret_value().split(",") if keys else ():
        name, colon, key = entry.strip().partition(":")
        token = key if colon else name
        if token and name != "sha256" and not token.startswith("sha256:"):
            return token
    return None


def _json(reply: Any) -> Mapping[str, Any]:
    try:
        value = reply.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}

"""Every setting, read once from the environment (`SAFELIGHT_*`). A bad value stops the start and names itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from tasks.errors import ConfigError
from tasks.redaction import HIDDEN

RATE = r"[1-9][0-9]{0,6}/(second|minute|hour|day)"
_ORIGIN = r"(\*|https?://[A-Za-z0-9.:\[\]-]+)"
_PLACE = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^,\x00-\x1f]*)?"


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="SAFELIGHT_", env_ignore_empty=True, frozen=True, extra="ignore", hide_input_in_errors=True
    )

    #: Holds a password, so it is not shown.
    redis_url: Annotated[str, Field(pattern=r"^(rediss?|unix|sentinel)://")] = "redis://127.0.0.1:6379/0"
    #: Before every key of ours. Use a hash tag such as `{safelight}:` on a Redis Cluster.
    key_prefix: str = "safelight:"
    s3_endpoint_url: str | None = None
    #: The host in presigned URLs, as browsers reach it; default: the endpoint itself.
    s3_public_endpoint_url: str | None = None
    s3_bucket: Annotated[str, Field(min_length=3, max_length=63)] = "safelight"
    s3_prefix: str = ""
    s3_region: str = "us-east-1"
    models: Path | None = None
    #: A running attempt that has not renewed for this long is lost.
    lease_s: Annotated[float, Field(ge=1, le=3_600)] = 15.0
    #: Failed attempts after which a job fails for good. Lost ones are counted apart: see `JobStore.reap`.
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    result_ttl_s: Annotated[float, Field(ge=60)] = 7 * 86_400.0
    #: The record of a dead letter stays this long, or for `result_ttl_s` if that is longer.
    dead_letter_ttl_s: Annotated[float, Field(ge=60)] = 30 * 86_400.0
    max_queued: Annotated[int, Field(ge=1)] = 100_000
    #: Queues that carry `safelight.submit`. Add `celery` only if no other Celery app shares this Redis database.
    submit_queues: str = "safelight.submit"
    #: Jobs that one worker holds beyond a full batch: they load inputs, wait for their batch, or upload.
    look_ahead_rows: Annotated[int, Field(ge=0, le=1024)] = 8
    abort_poll_s: Annotated[float, Field(gt=0, le=5)] = 0.1
    progress_interval_s: Annotated[float, Field(ge=0, le=10)] = 0.25
    drain_grace_s: Annotated[float, Field(ge=0, le=3_600)] = 25.0
    #: A running batch that reports no step for this long has hung its device: the worker leaves with exit code 1.
    stall_s: Annotated[float, Field(ge=1)] = 900.0
    #: How long finished pictures are kept while the object store is away.
    upload_patience_s: Annotated[float, Field(ge=1)] = 900.0
    webhook_secret: SecretStr | None = None
    #: Lets input URLs and webhooks reach private addresses. For development.
    allow_private_urls: bool = False
    #: Comma-separated bearer tokens, `KEY` or `NAME:KEY`; unset: no authentication.
    api_keys: SecretStr | None = None
    #: Jobs that one key may send, as `60/minute`; over all API processes.
    rate_limit: Annotated[str, Field(pattern=f"^{RATE}$")] | None = None
    #: Web origins, comma-separated, whose pages may call the API; `*`: all.
    cors_origins: Annotated[str, Field(pattern=rf"^({_ORIGIN}( *, *{_ORIGIN})*)?$")] = ""
    #: From where `s3://` inputs are read: `bucket` or `bucket/folder`, comma-separated; empty: the own bucket.
    input_buckets: Annotated[str, Field(pattern=rf"^({_PLACE}( *, *{_PLACE})*)?$")] = ""
    max_body_bytes: Annotated[int, Field(ge=1024)] = 20 * 1024 * 1024
    #: How long a call of the OpenAI-compatible images routes waits for its job.
    sync_wait_s: Annotated[float, Field(gt=0, le=3_600)] = 300.0
    worker_name: str = Field(default_factory=socket.gethostname)
    log_level: Annotated[str, Field(pattern=r"^(debug|info|warning|error)$")] = "info"
    log_format: Annotated[str, Field(pattern=r"^(text|json)$")] = "text"
    #: A worker serves its own metrics there; unset: nowhere. The API has them all either way.
    metrics_port: Annotated[int, Field(ge=1, le=65_535)] | None = None

    @property
    def submit_queue_names(self) -> list[str]:
        return [name.strip() for name in self.submit_queues.split(",") if name.strip()]

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """What a log or a traceback may show: the login of Redis is no part of it."""
        for name, value in super().__repr_args__():
            yield name, _without_login(value) if name == "redis_url" else value


def _without_login(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    login, at, place = rest.rpartition("@")
    return f"{scheme}{separator}{HIDDEN}{at}{place}" if login else url


def read_settings() -> Settings:
    """Settings from the environment. Raises `ConfigError` with the variable's name, never its value."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = "SAFELIGHT_" + "_".join(str(part) for part in first["loc"]).upper()
        raise ConfigError(f"{name}: {first['msg']}") from None

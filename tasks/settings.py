"""Every setting, read once from the environment (`SAFELIGHT_*`). A bad value stops the start and names itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

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

    #: `redis://`, `rediss://` (TLS), `unix://`, or `sentinel://h1:26379;sentinel://h2:26379/0?master_name=m`; logins
    #: and certificates: docs/redis.md. It may hold a password, so it is not shown.
    redis_url: Annotated[str, Field(pattern=r"^(rediss?|unix|sentinel)://")] = "redis://127.0.0.1:6379/0"
    #: Before every key of ours; a hash tag such as `{safelight}:` on a Redis Cluster. Celery's queues have no prefix:
    #: give two systems two databases.
    key_prefix: str = "safelight:"
    #: The store as workers and API reach it; unset: AWS.
    s3_endpoint_url: str | None = None
    #: The host in presigned URLs, as clients reach it; unset: the endpoint.
    s3_public_endpoint_url: str | None = None
    #: Created at the start if it is not there.
    s3_bucket: Annotated[str, Field(min_length=3, max_length=63)] = "safelight"
    #: Before every object's key.
    s3_prefix: str = ""
    #: The region that requests are signed for.
    s3_region: str = "us-east-1"
    #: Where requests name the bucket: in the path, or (`virtual`) in the host's name, which some stores insist on;
    #: `auto`: in the path wherever an endpoint is set, else as AWS wants it.
    s3_addressing: Literal["auto", "path", "virtual"] = "auto"
    #: A models file (docs/reference/models.md); unset: the bundled model.
    models: Path | None = None
    #: A running attempt that has not renewed for this long is lost, and its job runs again.
    lease_s: Annotated[float, Field(ge=1, le=3_600)] = 15.0
    #: Failed attempts after which a job fails for good; crashes are counted apart (docs/states.md).
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    #: How long the record of an ended job is kept; pictures stay until the bucket's lifecycle rule.
    result_ttl_s: Annotated[float, Field(ge=60, le=315_360_000)] = 7 * 86_400.0
    #: How long the record of a dead letter is kept; at least `SAFELIGHT_RESULT_TTL_S`.
    dead_letter_ttl_s: Annotated[float, Field(ge=60, le=315_360_000)] = 30 * 86_400.0
    #: Queued jobs beyond which new ones are refused (HTTP 429).
    max_queued: Annotated[int, Field(ge=1)] = 100_000
    #: A TOML file: weights and limits of tenants and groups, see `tasks.quotas`.
    tenants: Path | None = None
    #: Celery queues, comma-separated, on which workers take `safelight.submit`. Add `celery`, the default of producers,
    #: only if no other Celery app shares this Redis database; compose does.
    submit_queues: str = "safelight.submit"
    #: Jobs that a worker holds beyond a full batch: they load inputs, wait for their batch, or upload.
    look_ahead_rows: Annotated[int, Field(ge=0, le=1024)] = 8
    #: What the models of a worker may take of a device together, MiB; those that do not fit take turns. Unset: what the
    #: GPU has, and no bound on a CPU.
    model_memory_mb: Annotated[int, Field(ge=1)] | None = None
    #: How long a model with jobs goes on while another waits for its memory.
    model_turn_s: Annotated[float, Field(ge=0, le=86_400)] = 30.0
    #: How often a worker looks for aborts: in what Redis told it, or by asking where Redis does not tell.
    abort_poll_s: Annotated[float, Field(gt=0, le=5)] = 0.1
    #: How often it writes progress; 0: at every step, as far as a hundred times a second allow.
    progress_interval_s: Annotated[float, Field(ge=0, le=10)] = 0.25
    #: How long running jobs may go on after SIGTERM.
    drain_grace_s: Annotated[float, Field(ge=0, le=3_600)] = 25.0
    #: A running batch that reports no step for so long has hung its device: the worker leaves with exit code 1. Keep it
    #: above the longest first step of a compiled model.
    stall_s: Annotated[float, Field(ge=1)] = 900.0
    #: How long finished outputs are kept while the object store is away.
    upload_patience_s: Annotated[float, Field(ge=1)] = 6 * 3_600.0
    #: Where finished outputs wait for the object store (docs/operations.md); unset: `safelight/spool/NAME` in
    #: the user's cache folder, one for each worker's name.
    spool_dir: Path | None = None
    #: The size of that folder; 0: no spool, they wait in memory.
    spool_max_bytes: Annotated[int, Field(ge=0)] = 2 * 1024**3
    #: Finished jobs that may wait there; beyond, the worker takes nothing new.
    spool_max_jobs: Annotated[int, Field(ge=0)] = 256
    #: Signs webhooks (`whsec_…`); several, separated by spaces, while one is replaced.
    webhook_secret: SecretStr | None = None
    #: Lets input URLs and webhooks reach private addresses. For development.
    allow_private_urls: bool = False
    #: Bearer tokens, comma-separated: `KEY`, or `NAME:KEY` (docs/operations.md#keys). Unset: everybody who reaches the
    #: port may call.
    api_keys: SecretStr | None = None
    #: Jobs that one name may send, as `60/minute` (second, minute, hour, day); over all API processes. HTTP only.
    rate_limit: Annotated[str, Field(pattern=f"^{RATE}$")] | None = None
    #: Web origins, comma-separated, whose pages may call the API from a browser; `*`: all; empty: its own page alone.
    cors_origins: Annotated[str, Field(pattern=rf"^({_ORIGIN}( *, *{_ORIGIN})*)?$")] = ""
    #: From where `s3://` inputs are read: `bucket` or `bucket/folder`, comma-separated; empty: the own bucket alone. A
    #: list replaces that, so name the own bucket too if outputs are to be inputs again.
    input_buckets: Annotated[str, Field(pattern=rf"^({_PLACE}( *, *{_PLACE})*)?$")] = ""
    #: The largest body that the API reads.
    max_body_bytes: Annotated[int, Field(ge=1024)] = 20 * 1024 * 1024
    #: How long a call of `/v1/images/…` waits for its job before it answers 504. Keep it below the idle timeout of
    #: whatever proxy stands in front.
    sync_wait_s: Annotated[float, Field(gt=0, le=3_600)] = 300.0
    #: What a worker calls itself. In a container the host name is the container's id, in Kubernetes the pod's name.
    worker_name: str = Field(default_factory=socket.gethostname)
    #: `debug`, `info`, `warning` or `error`.
    log_level: Annotated[str, Field(pattern=r"^(debug|info|warning|error)$")] = "info"
    #: `text`, or `json`: one object a line (docs/observability.md).
    log_format: Annotated[str, Field(pattern=r"^(text|json)$")] = "text"
    #: A worker serves its own metrics on this port; the API has them all either way.
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


def given_settings(settings: Settings | None) -> Settings:
    """Those, or the environment's. Raises TypeError for anything else, such as an address."""
    if settings is None:
        return read_settings()
    if not isinstance(settings, Settings):
        raise TypeError(f"settings is a {type(settings).__name__}; an address is given by name: redis_url=…")
    return settings


def read_settings() -> Settings:
    """Settings from the environment. Raises `ConfigError` with the variable's name, never its value."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = "SAFELIGHT_" + "_".join(str(part) for part in first["loc"]).upper()
        raise ConfigError(f"{name}: {first['msg']}") from None

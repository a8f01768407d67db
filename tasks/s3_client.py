"""How boto3 is set up for any S3-compatible store, and what an endpoint looks like. The only maker of its clients."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tasks.errors import ConfigError
from tasks.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


#: That a client keeps open. Calls beyond get connections of their own, which are thrown away with a warning.
NUM_CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one call may take."""

    connect_s: float = 3.0
    read_s: float = 20.0
    num_attempts: int = 3


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the store is: for us and in presigned URLs. `ours` is None on AWS."""

    ours: str | None
    public: str | None
    region: str
    #: Where the bucket stands; auto: in the path wherever an endpoint is named.
    addressing: Literal["auto", "path", "virtual"] = "auto"

    @property
    def where(self) -> str:
        return self.ours or f"AWS S3 ({self.region})"


def endpoints(settings: Settings) -> Endpoints:
    """Raises `ConfigError` naming the setting that is no endpoint."""
    ours = _endpoint("S3_ENDPOINT_URL", settings.s3_endpoint_url)
    public = _endpoint("S3_PUBLIC_ENDPOINT_URL", settings.s3_public_endpoint_url) or ours
    return Endpoints(ours, public, settings.s3_region.strip() or "us-east-1", settings.s3_addressing)


def s3_client(
    endpoint: str | None, place: Endpoints, patience: Patience | None = None, num_connections: int = NUM_CONNECTIONS
) -> S3Client:
    """A client that connects at first use, to one of the place's endpoints. No checksums of boto3's own: many stores
    refuse the trailers that it sends by default."""
    import boto3
    from botocore.config import Config

    patience = patience or Patience()
    config = Config(
        signature_version="s3v4",  # the default falls back to SigV2 for presigned URLs in us-east-1
        s3={"addressing_style": "path" if endpoint and place.addressing == "auto" else place.addressing},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        connect_timeout=patience.connect_s,
        read_timeout=patience.read_s,
        retries={"mode": "standard", "total_max_attempts": patience.num_attempts},
        max_pool_connections=num_connections,
    )
    client: S3Client = boto3.session.Session().client(
        "s3", endpoint_url=endpoint, region_name=place.region, config=config
    )
    return client


def tell_silence(client: S3Client, tell: Callable[[], object]) -> None:
    """`tell` is called by the calling thread whenever a try of a call was not answered in time; more may follow."""
    from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

    def hear(caught_exception: Exception | None = None, **_: Any) -> None:
        if isinstance(caught_exception, ConnectTimeoutError | ReadTimeoutError):
            tell()

    client.meta.events.register("needs-retry.s3", hear)


def _endpoint(name: str, url: str | None) -> str | None:
    cleaned = (url or "").strip().rstrip("/")
    if not cleaned:
        return None
    if not re.fullmatch(r"https?://[^/\s?#@]+(/[^\s?#]*)?", cleaned):
        raise ConfigError(f"SAFELIGHT_{name}: is not an endpoint; write http://HOST:PORT or https://HOST")
    return cleaned

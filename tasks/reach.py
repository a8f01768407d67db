"""Addresses in a request that can never be reached under the settings are refused at the edge. No name is looked up."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.errors import InvalidRequest
from tasks.input_places import InputPlaces
from tasks.request import GenerationRequest
from tasks.settings import Settings
from tasks.ssrf import ForbiddenAddress, check_url


def check_reach(request: GenerationRequest, settings: Settings) -> None:
    """Raises `InvalidRequest` naming the field. What only a name server or a connection can tell fails later."""
    for fault in unreachable(request, settings):
        raise fault


def unreachable(request: GenerationRequest, settings: Settings) -> Iterator[InvalidRequest]:
    """A fault for each address that a worker would refuse without asking anybody."""
    for field, uri in (("image", request.image), ("mask_image", request.mask_image)):
        if uri is not None and (reason := _unreadable(uri, settings)):
            yield InvalidRequest(field, reason)
    if request.webhook_url is not None:
        try:
            check_url(request.webhook_url, settings.allow_private_urls)
        except ForbiddenAddress as error:
            hint = "" if settings.allow_private_urls else "; private addresses want SAFELIGHT_ALLOW_PRIVATE_URLS"
            yield InvalidRequest("webhook_url", f"can never be reached: {error}{hint}")


def _unreadable(uri: str, settings: Settings) -> str | None:
    if uri.startswith("data:"):
        return None
    if uri.startswith("s3://"):
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        places = InputPlaces.of(settings)
        return None if places.allow(bucket, key) else f"only objects of {places} can be read"
    if uri.startswith("http://") and not settings.allow_private_urls:
        return "http:// is not fetched; send an https://, s3:// or data: URI"
    try:
        check_url(uri, settings.allow_private_urls)
    except ForbiddenAddress as error:
        return f"can never be fetched: {error}"
    return None

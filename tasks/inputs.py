"""Pictures that a request names: found by URI, bounded, decoded. Knows the sources; `decode` knows the formats."""

from __future__ import annotations

import base64
import binascii
import threading
from contextlib import closing
from urllib.parse import unquote_to_bytes

import httpx

from tasks.artifacts import ArtifactStore, DownloadFailed, parse_uri
from tasks.decode import InvalidImage, LoadedImage, decode, fit
from tasks.input_places import InputPlaces
from tasks.settings import Settings
from tasks.ssrf import Deadline, ForbiddenAddress, GuardedTransport

__all__ = ["InputLoader", "InvalidImage", "LoadedImage"]

MAX_INPUT_BYTES = 20 * 1024 * 1024
FETCH_TIMEOUT_S = 10.0
_MAX_REDIRECTS = 3
#: Pictures in the making at a time: one at the bound of `decode` takes some hundred MB on the way, from a small file.
_MAX_DECODING = 2
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"User-Agent": "safelight", "Accept": "image/*", "Accept-Encoding": "identity"}


class InputLoader:
    """Safe to share between threads."""

    def __init__(self, settings: Settings, artifacts: ArtifactStore) -> None:
        self._artifacts = artifacts
        self._places = InputPlaces.of(settings)
        self._allow_private = settings.allow_private_urls
        self._decoding = threading.BoundedSemaphore(_MAX_DECODING)
        self._transport = GuardedTransport(allow_private=settings.allow_private_urls)

    def load_image(self, uri: str, field: str, size: tuple[int, int] | None = None) -> LoadedImage:
        """The picture at `uri` as RGB (L for `mask_image`), resized to `size` (width, height) if given.

        Raises `InvalidImage` for what is the request's fault, and `StoreUnavailable` if the object store is away.
        """
        data = self._read(uri, field)
        with self._decoding:
            loaded = decode(data, field, "L" if field == "mask_image" else "RGB")
            return loaded if size is None else fit(loaded, *size, field)

    def _read(self, uri: str, field: str) -> bytes:
        if uri.startswith("data:"):
            return _from_data_uri(uri, field)
        if uri.startswith("s3://"):
            return self._from_bucket(uri, field)
        try:
            return self._fetch(uri, field)
        except httpx.InvalidURL as error:
            raise InvalidImage(field, f"is not a URL: {error}") from None
        except ForbiddenAddress as error:
            raise InvalidImage(field, f"cannot be fetched: {error}") from None
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise InvalidImage(field, f"cannot be fetched: {type(error).__name__}: {str(error)[:200]}") from None

    def _from_bucket(self, uri: str, field: str) -> bytes:
        try:
            if not self._places.allow(*parse_uri(uri)):
                raise InvalidImage(field, f"only objects of {self._places} can be read")
            return self._artifacts.get(uri, MAX_INPUT_BYTES)
        except DownloadFailed as error:
            raise InvalidImage(field, str(error)) from None

    def _fetch(self, url: str, field: str) -> bytes:
        with Deadline(FETCH_TIMEOUT_S) as deadline:
            try:
                target = self._checked(httpx.URL(url), field)
                for _ in range(_MAX_REDIRECTS + 1):
                    request = httpx.Request("GET", target, headers=_HEADERS, extensions=deadline.extensions)
                    with closing(self._transport.handle_request(request)) as reply:
                        if reply.status_code not in _REDIRECTS:
                            body = _body(reply, field)
                            if deadline.expired:  # the end of a body without a length looks like a cut
                                raise httpx.ReadTimeout("the connection was cut")
                            return body
                        target = self._checked(target.join(reply.headers.get("location", "")), field)
            except (httpx.HTTPError, OSError):
                if deadline.remaining_s <= 0:
                    raise InvalidImage(field, f"cannot be fetched in {FETCH_TIMEOUT_S:.0f} s") from None
                raise
        raise InvalidImage(field, f"cannot be fetched: more than {_MAX_REDIRECTS} redirects")

    def _checked(self, url: httpx.URL, field: str) -> httpx.URL:
        if url.scheme != "https" and not (url.scheme == "http" and self._allow_private):
            raise InvalidImage(field, f"cannot be fetched: {url.scheme or 'no scheme'} where https is needed")
        return url


def _body(reply: httpx.Response, field: str) -> bytes:
    if reply.status_code != 200:
        raise InvalidImage(field, f"cannot be fetched: its server answered {reply.status_code}")
    if reply.headers.get("content-encoding", "identity").lower() != "identity":
        raise InvalidImage(field, "cannot be fetched: its server compressed it although asked not to")
    announced = reply.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > MAX_INPUT_BYTES:
        raise _too_large(field)
    body = bytearray()
    for chunk in reply.iter_raw():
        body += chunk
        if len(body) > MAX_INPUT_BYTES:
            raise _too_large(field)
    return bytes(body)


def _from_data_uri(uri: str, field: str) -> bytes:
    head, comma, payload = uri.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise InvalidImage(field, "is not of the form data:TYPE;base64,DATA")
    if len(payload) > MAX_INPUT_BYTES * 2:  # room for line breaks and percent-encoding
        raise _too_large(field)
    try:
        encoded = b"".join(unquote_to_bytes(payload).split())
        data = base64.b64decode(encoded + b"=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidImage(field, "holds characters that are not base64") from None
    if len(data) > MAX_INPUT_BYTES:
        raise _too_large(field)
    return data


def _too_large(field: str) -> InvalidImage:
    return InvalidImage(field, f"is larger than {MAX_INPUT_BYTES} bytes")

"""Facts of the object store: every kind of call that Safelight makes, on objects that are gone afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from tasks.artifact_faults import http_status, s3_code
from tasks.artifacts import ArtifactStore, object_key
from tasks.doctor.probe.listener import Listener, who_listens
from tasks.errors import SafelightError
from tasks.input_places import InputPlaces
from tasks.s3_client import Endpoints, Patience, endpoints
from tasks.settings import Settings

#: What S3 takes as any part but the last.
_PART_BYTES = 5 * 1024 * 1024
_ODD = "a b+c/ü//"
_BODY = b"written by `safelight doctor`, and deleted by it\n"


@dataclass(frozen=True, slots=True)
class Credentials:
    #: boto3's word for where it found them.
    source: str
    key_id: str
    has_token: bool


@dataclass(frozen=True, slots=True)
class FirstCall:
    """A listing of the bucket."""

    taken_s: float
    error: Exception | None
    #: Seconds that the store's clock is ahead of ours, by its Date header; None without one.
    clock_ahead_s: float | None
    listener: Listener | None


@dataclass(frozen=True, slots=True)
class Opened:
    """What a GET of a presigned URL gave; `error` if nothing."""

    host: str
    status: int = 0
    is_object: bool = False
    error: str = ""
    listener: Listener | None = None


@dataclass(frozen=True, slots=True)
class InputAnswer:
    """What the store says to a read in a bucket of `SAFELIGHT_INPUT_BUCKETS`, of an object that is not there."""

    bucket: str
    folder: str
    error: Exception


class StoreProbe:
    """A context manager: what it wrote is gone when it ends, a bucket that it created too. One use, one thread."""

    def __init__(self, settings: Settings, limit_s: float, now: Callable[[], float] = time.time) -> None:
        """Raises `ConfigError` for an endpoint that is none."""
        self.place: Endpoints = endpoints(settings)
        self.bucket = settings.s3_bucket
        self._input_places = InputPlaces.of(settings).places
        self._limit_s, self._now = limit_s, now
        self._artifacts = ArtifactStore(settings, Patience(limit_s, 3 * limit_s, 1))
        self._client: Any = self._artifacts.client
        job = f"doctor-{secrets.token_hex(6)}"
        self._key = object_key(settings.s3_prefix, _ODD, job, 1, 0, "txt")
        self._keys = {
            name: object_key(settings.s3_prefix, "", job, 1, index, "txt") for index, name in enumerate(_USES)
        }
        self._written: list[str] = []
        self._upload_id: str | None = None
        self._made_bucket = False

    def __enter__(self) -> StoreProbe:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with contextlib.suppress(Exception):
            self.abort_upload()
        for key in self._written:
            with contextlib.suppress(Exception):
                self._client.delete_object(Bucket=self.bucket, Key=key)
        if self._made_bucket:
            with contextlib.suppress(Exception):
                self._client.delete_bucket(Bucket=self.bucket)

    def credentials(self) -> Credentials | None:
        import boto3

        found: Any = boto3.session.Session().get_credentials()
        return None if found is None else Credentials(found.method, found.access_key or "", bool(found.token))

    def first_call(self) -> FirstCall:
        began, before = time.perf_counter(), self._now()
        reply, error = self._attempt(lambda: self._client.list_objects_v2(Bucket=self.bucket, MaxKeys=1))
        after = self._now()
        headers = _headers(reply if error is None else getattr(error, "response", None))
        ahead = _date(headers.get("date"), (before + after) / 2)
        listener = self._look_closer(self.place.ours) if error is not None and not http_status(error) else None
        return FirstCall(time.perf_counter() - began, error, ahead, listener)

    def create_bucket(self) -> Exception | None:
        place = {"CreateBucketConfiguration": {"LocationConstraint": self.place.region}}
        extra: Mapping[str, Any] = {} if self.place.region == "us-east-1" else place
        _, error = self._attempt(lambda: self._client.create_bucket(Bucket=self.bucket, **extra))
        self._made_bucket = error is None
        return error

    def region(self) -> str | None:
        """Of the bucket, where the store tells; AWS' first region has no name."""
        reply, error = self._attempt(lambda: self._client.get_bucket_location(Bucket=self.bucket))
        return None if error is not None else str(reply.get("LocationConstraint") or "us-east-1")

    def look_into_inputs(self) -> Iterator[InputAnswer]:
        """Of every place but the own bucket; reads alone, since a worker may do no more there."""
        for bucket, folder in self._input_places:
            if bucket != self.bucket:
                key = f"{folder}doctor-{secrets.token_hex(6)}"
                yield InputAnswer(bucket, folder, self._read_of_nothing(bucket, key))

    def put(self) -> Exception | None:
        """As a worker does: the store is asked afterwards what it holds."""
        self._written.append(self._key)
        sha256 = hashlib.sha256(_BODY).hexdigest()
        _, error = self._attempt(lambda: self._artifacts.put(self._key, _BODY, "text/plain", sha256, {"seed": "7"}))
        return error

    def get(self) -> Exception | None:
        uri = f"s3://{self.bucket}/{self._key}"
        body, error = self._attempt(lambda: self._artifacts.get(uri, len(_BODY)))
        return error if error is not None or body == _BODY else ValueError("other bytes came back")

    def open_presigned(self) -> Opened:
        """As a browser does."""
        import httpx

        url = self._artifacts.presign(f"s3://{self.bucket}/{self._key}", 60, 'attachment; filename="doctor.txt"')
        host = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"
        try:
            with httpx.stream("GET", url, timeout=self._limit_s, follow_redirects=False) as reply:
                body = next(reply.iter_bytes(1024), b"")
            return Opened(host, reply.status_code, body == _BODY)
        except httpx.HTTPError as error:
            listener = self._look_closer(self.place.public)
            return Opened(host, error=str(error) or type(error).__name__, listener=listener)

    def conditional_put(self) -> bool | Exception:
        """Whether a second put with If-None-Match is refused."""
        for is_second in (False, True):
            _, error = self._attempt(lambda: self._put("conditional", IfNoneMatch="*"))
            if error is not None:
                return True if is_second and http_status(error) in (409, 412) else error
        return False

    def put_with_checksum(self) -> Exception | None:
        """As boto3 does by default since 1.36: in a trailer over https, in a header over http."""
        return self._attempt(lambda: self._put("checksum", ChecksumAlgorithm="CRC32"))[1]

    def multipart(self) -> Exception | None:
        """Two parts."""
        error = self._attempt(self._upload_parts)[1]
        if error is not None:
            self._attempt(self.abort_upload)
        return error

    def delete(self) -> Exception | None:
        """Several at a time, as a worker does with the outputs of a lost attempt."""
        _, error = self._attempt(lambda: self._artifacts.delete(self._written))
        if error is None:
            self._written.clear()
        return error

    def abort_upload(self) -> None:
        if self._upload_id is not None:
            place = {"Bucket": self.bucket, "Key": self._keys["multipart"], "UploadId": self._upload_id}
            self._upload_id = None
            self._client.abort_multipart_upload(**place)

    def _upload_parts(self) -> None:
        key = self._keys["multipart"]
        self._written.append(key)
        self._upload_id = self._client.create_multipart_upload(Bucket=self.bucket, Key=key)["UploadId"]
        place = {"Bucket": self.bucket, "Key": key, "UploadId": self._upload_id}
        parts = []
        for number, body in enumerate((bytes(_PART_BYTES), _BODY), 1):
            reply = self._client.upload_part(**place, PartNumber=number, Body=body)
            parts.append({"PartNumber": number, "ETag": reply["ETag"]})
        self._client.complete_multipart_upload(**place, MultipartUpload={"Parts": parts})
        self._upload_id = None

    def _read_of_nothing(self, bucket: str, key: str) -> Exception:
        _, error = self._attempt(lambda: self._client.get_object(Bucket=bucket, Key=key))
        return error or ValueError(f"{key} is there, though nobody wrote it")

    def _put(self, use: str, **extra: str) -> None:
        if self._keys[use] not in self._written:
            self._written.append(self._keys[use])
        self._client.put_object(Bucket=self.bucket, Key=self._keys[use], Body=_BODY, **extra)

    def _attempt(self, call: Callable[[], Any]) -> tuple[Any, Exception | None]:
        try:
            return call(), None
        except Exception as error:  # boto3's errors share no root with its transport's
            is_wrapped = isinstance(error, SafelightError) and isinstance(error.__cause__, Exception)
            return None, error.__cause__ if is_wrapped else error  # type: ignore[return-value]

    def _look_closer(self, endpoint: str | None) -> Listener | None:
        parts = urlsplit(endpoint or "")
        if not parts.hostname:
            return None
        return who_listens(parts.hostname, parts.port or (443 if parts.scheme == "https" else 80), self._limit_s)


_USES = ("conditional", "checksum", "multipart")


def _headers(reply: Any) -> Mapping[str, str]:
    return dict((reply or {}).get("ResponseMetadata", {}).get("HTTPHeaders", {}))


def _date(text: str | None, now: float) -> float | None:
    if not text:
        return None
    try:
        return parsedate_to_datetime(text).timestamp() - now
    except ValueError:
        return None


def is_missing_bucket(error: Exception | None) -> bool:
    return error is not None and s3_code(error) == "NoSuchBucket"

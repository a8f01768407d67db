"""Finished files and stored inputs in an S3-compatible bucket. Knows no jobs."""

from __future__ import annotations

import hashlib
import io
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tasks.artifact_faults import explain, http_status, is_transient, lacks_credentials, s3_code, to_ascii
from tasks.errors import SafelightError, StoreUnavailable
from tasks.s3_client import NUM_CONNECTIONS, Patience, endpoints, s3_client, tell_silence
from tasks.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MULTIPART_BYTES = 16 * 1024 * 1024
MAX_PRESIGN_S = 7 * 86_400  # the limit of Signature Version 4
_MAX_METADATA_BYTES = 1_900  # S3 takes 2 KB over all names and values


class UploadFailed(SafelightError):
    """An object was not stored. `retryable`: the same bytes may go through later, without a change by an operator."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable


class DownloadFailed(SafelightError):
    """An object cannot be had: missing, refused or too large. Trying again does not help."""


def object_key(prefix: str, output_prefix: str, job_id: str, attempt: int, index: int, ext: str) -> str:
    """`{prefix}/{output_prefix}/{job_id}/{attempt}/{index}.{ext}` without empty parts (stores differ on `//`)."""
    parts = [*prefix.split("/"), *output_prefix.split("/"), job_id, str(attempt), f"{index}.{ext.lstrip('.')}"]
    return "/".join(part for part in parts if part not in ("", ".", ".."))


def parse_uri(uri: str) -> tuple[str, str]:
    """Bucket and key of `s3://bucket/key`. The key is taken as it stands: `?`, `#`, `%` have no meaning in it."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not uri.startswith("s3://") or not bucket or not key:
        raise DownloadFailed(f"{uri[:200]!r} is not of the form s3://bucket/key")
    return bucket, key


class ArtifactStore:
    """One bucket. Safe to share between threads; every call is bounded in time."""

    def __init__(
        self, settings: Settings, patience: Patience | None = None, num_connections: int = NUM_CONNECTIONS
    ) -> None:
        self.bucket = settings.s3_bucket
        place = endpoints(settings)
        self._region, self._where = place.region, place.where
        self._client = s3_client(place.ours, place, patience, num_connections)
        self._signer = self._client if place.public == place.ours else s3_client(place.public, place)
        self._here = threading.local()
        tell_silence(self._client, self._tell_silence)

    @property
    def client(self) -> S3Client:
        """For calls that are not about files."""
        return self._client

    @contextmanager
    def watched(self, tell: Callable[[], object]) -> Iterator[None]:
        """`tell` is called as soon as a call of this thread had no answer to a try, long before it may fail."""
        self._here.tell = tell
        try:
            yield
        finally:
            del self._here.tell

    def _tell_silence(self) -> None:
        getattr(self._here, "tell", _nobody)()

    def ensure_bucket(self, patience_s: float = 5.0) -> None:
        """Create the bucket unless it is there, while the store starts up. Raises `StoreUnavailable`."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self._look()
                return
            except Exception as error:
                failure: Exception = error
            if s3_code(failure) == "NoSuchBucket":
                failure = self._create() or failure
            elif not is_transient(failure):
                raise StoreUnavailable(self._explain(failure)) from failure
            if time.monotonic() > deadline:
                raise StoreUnavailable(self._explain(failure)) from failure
            time.sleep(0.2)

    def probe(self) -> None:
        """Raises `StoreUnavailable` with one line: what is wrong, where, and what to try."""
        try:
            self._look()
        except Exception as error:
            raise StoreUnavailable(self._explain(error)) from error

    def put(
        self, key: str, body: bytes | Path, content_type: str, sha256: str, metadata: Mapping[str, str] | None = None
    ) -> str:
        """Store `body`, check what the store then says of it, and give its `s3://` URI. Raises `UploadFailed`."""
        extra = {
            "ContentType": content_type,
            "CacheControl": "public,max-age=31536000,immutable",
            "Metadata": _safe_metadata({"sha256": sha256, **(metadata or {})}),
        }
        try:
            with body.open("rb") if isinstance(body, Path) else io.BytesIO(body) as stream:
                size, md5 = self._upload(stream, key, extra)
        except Exception as error:
            raise self._upload_failed(key, error) from error
        try:
            head: Any = self._client.head_object(Bucket=self.bucket, Key=key)
        except Exception as error:
            if http_status(error) == 404:
                raise UploadFailed(f"the store took {key} and lost it", retryable=True) from error
            raise self._upload_failed(key, error) from error
        _verify(key, head, size, sha256, md5)
        return f"s3://{self.bucket}/{key}"

    def _upload(self, stream: BinaryIO, key: str, extra: dict[str, Any]) -> tuple[int, str | None]:
        """Size in bytes, and the MD5 that a store gives as ETag when the object goes up in one part."""
        size = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        if size > MULTIPART_BYTES:
            self._client.upload_fileobj(stream, self.bucket, key, ExtraArgs=extra, Config=_transfer_config())
            return size, None
        # As bytes: boto3 asks for no permission to send them (Expect: 100-continue), which is a round trip, and its
        # machinery for transfers costs as much CPU again.
        data = stream.read()
        self._client.put_object(Bucket=self.bucket, Key=key, Body=data, **extra)
        return size, hashlib.md5(data, usedforsecurity=False).hexdigest()

    def get(self, uri: str, max_bytes: int) -> bytes:
        """The whole object. Raises `DownloadFailed` (final) or `StoreUnavailable` (may pass)."""
        bucket, key = parse_uri(uri)
        try:
            reply = self._client.get_object(Bucket=bucket, Key=key)
            with reply["Body"] as stream:
                size = reply["ContentLength"]
                body = stream.read() if size <= max_bytes else b""
        except Exception as error:
            if is_transient(error):
                raise StoreUnavailable(self._explain(error)) from error
            raise DownloadFailed(f"{uri}: {self._explain(error, bucket)}") from error
        if size > max_bytes:
            raise DownloadFailed(f"{uri} has {size} bytes; at most {max_bytes} are accepted")
        return body

    def presign(self, uri: str, expires_s: int = 3600, content_disposition: str | None = None) -> str:
        """A GET URL on the public endpoint, valid for `expires_s` seconds (at most 7 days). No round trip."""
        bucket, key = parse_uri(uri)
        params = {"Bucket": bucket, "Key": key}
        if content_disposition:
            params["ResponseContentDisposition"] = to_ascii(content_disposition)
        try:
            expires_s = max(1, min(int(expires_s), MAX_PRESIGN_S))
            return self._signer.generate_presigned_url("get_object", Params=params, ExpiresIn=expires_s)
        except Exception as error:
            raise StoreUnavailable(self._explain(error)) from error

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; a missing one is no error. Raises `StoreUnavailable`."""
        for start in range(0, len(keys), 1000):
            objects = [{"Key": key} for key in keys[start : start + 1000]]
            try:
                reply: Any = self._client.delete_objects(
                    Bucket=self.bucket,
                    Delete={"Objects": objects, "Quiet": True},  # type: ignore[typeddict-item]
                )
            except Exception as error:
                if http_status(error) not in (400, 404, 405, 411, 501) or s3_code(error) == "NoSuchBucket":
                    raise StoreUnavailable(self._explain(error)) from error
                self._delete_each(keys[start : start + 1000])  # some stores take no lists, or want an MD5 with them
                continue
            if failed := reply.get("Errors"):
                first = f"{failed[0].get('Key')} ({failed[0].get('Code')})"
                raise StoreUnavailable(f"{self._where} kept {len(failed)} objects, the first: {first}")

    def _delete_each(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                self._client.delete_object(Bucket=self.bucket, Key=key)
            except Exception as error:
                if http_status(error) != 404 or s3_code(error) == "NoSuchBucket":
                    raise StoreUnavailable(self._explain(error)) from error

    def _look(self) -> None:
        # A listing, as HEAD of a bucket has no body to tell a missing bucket from a server that is not S3.
        self._client.list_objects_v2(Bucket=self.bucket, MaxKeys=1)

    def _create(self) -> Exception | None:
        # us-east-1 is the one region that must not be named.
        place: Any = {"CreateBucketConfiguration": {"LocationConstraint": self._region}}
        if self._region == "us-east-1":
            place = {}
        try:
            self._client.create_bucket(Bucket=self.bucket, **place)
        except Exception as error:
            return error
        return None

    def _upload_failed(self, key: str, error: Exception) -> UploadFailed:
        place = f"s3://{self.bucket}/{key}"
        if isinstance(error, OSError):
            return UploadFailed(f"{place}: cannot read the file to upload: {error}", retryable=False)
        reason = self._explain(error)
        if is_transient(error):
            return UploadFailed(f"{place}: {reason}", retryable=True)
        word = (
            "upload_denied" if http_status(error) in (401, 403, 404) or lacks_credentials(error) else "upload_refused"
        )
        return UploadFailed(f"{word}: {place}: {reason}", retryable=False)

    def _explain(self, error: Exception, bucket: str | None = None) -> str:
        return explain(error, self._where, bucket or self.bucket, self._region)


def _nobody() -> None:
    """To be told that nothing is heard."""


def _transfer_config() -> Any:
    from boto3.s3.transfer import TransferConfig

    # Without threads a failed part aborts the multipart upload before the call returns.
    return TransferConfig(
        multipart_threshold=MULTIPART_BYTES + 1, multipart_chunksize=MULTIPART_BYTES, use_threads=False
    )


def _verify(key: str, head: Mapping[str, Any], size: int, sha256: str, md5: str | None) -> None:
    found: list[str] = []
    if head["ContentLength"] != size:
        found.append(f"{head['ContentLength']} bytes instead of {size}")
    if head["Metadata"].get("sha256") != sha256:
        found.append(f"sha256 {head['Metadata'].get('sha256')} instead of {sha256}")
    etag = str(head.get("ETag", "")).strip('"').lower()
    # With server-side encryption by a customer's key the ETag is not the MD5 of the body.
    is_md5 = re.fullmatch(r"[0-9a-f]{32}", etag) and head.get("ServerSideEncryption", "AES256") == "AES256"
    if md5 and is_md5 and etag != md5 and "SSECustomerAlgorithm" not in head:
        found.append(f"MD5 {etag} instead of {md5}")
    if found:
        raise UploadFailed(f"the store holds something else under {key}: {', '.join(found)}", retryable=True)


def _safe_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Names and values that fit into headers; entries beyond S3's limit are left out, the first ones win."""
    safe: dict[str, str] = {}
    room = _MAX_METADATA_BYTES
    for name, value in metadata.items():
        name, value = re.sub(r"[^a-z0-9-]+", "-", name.lower()), to_ascii(value)
        room -= len(name) + len(value)
        if room >= 0 and value:
            safe[name] = value
    return safe

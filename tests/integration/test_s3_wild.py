"""Object stores as they are met: old, behind a path, with the bucket in the host's name, with refusals of their own."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tasks.artifacts import ArtifactStore, DownloadFailed, UploadFailed, object_key
from tasks.s3_client import Patience
from tasks.settings import Settings
from tests.integration.plain_s3 import PlainS3, plain_s3

BODY = b"\x89PNG not really" * 50
ONE_TRY = Patience(num_attempts=1)


def sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@pytest.fixture(scope="module")
def server() -> Iterator[PlainS3]:
    with plain_s3() as server:
        yield server


@pytest.fixture
def plain(server: PlainS3, monkeypatch: pytest.MonkeyPatch) -> PlainS3:
    server.reset()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    for name in ("AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return server


def store_at(plain: PlainS3, path: str = "", **changes: str) -> ArtifactStore:
    return new_store(f"http://127.0.0.1:{plain.port}{path}", **changes)


@functools.cache
def new_store(url: str, **changes: str) -> ArtifactStore:
    """Making a client takes boto3 longer than all that a test does with it."""
    given = {"s3_endpoint_url": url, "s3_bucket": "pictures", **changes}
    return ArtifactStore(Settings.model_validate(given), ONE_TRY)


def test_a_store_without_trailers_and_checksums_takes_all_that_we_do(plain: PlainS3) -> None:
    store = store_at(plain)
    uri = store.put("a/0.png", BODY, "image/png", sha(BODY))
    assert store.get(uri, 10_000) == BODY
    store.put("a/1.png", BODY, "image/png", sha(BODY))
    store.delete(["a/0.png", "a/1.png", "absent"])
    assert plain.objects == {}
    with pytest.raises(DownloadFailed):
        store.get(uri, 10_000)


def test_such_a_store_takes_large_files_in_parts(plain: PlainS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.artifacts.MULTIPART_BYTES", 5 * 1024 * 1024)
    body = bytes(5 * 1024 * 1024 + 1)
    store_at(plain).put("v.mp4", body, "video/mp4", sha(body))
    assert plain.objects["pictures/v.mp4"][0] == body
    assert plain.uploads == {}


@pytest.mark.parametrize("path", ["", "/", "/s3", "/gateway/s3/"])
def test_an_endpoint_may_have_a_path_and_a_slash_at_its_end(plain: PlainS3, path: str) -> None:
    store = store_at(plain, path)
    uri = store.put("a b/ü+/0.png", BODY, "image/png", sha(BODY))
    assert uri == "s3://pictures/a b/ü+/0.png"
    assert set(plain.objects) == {f"{path.strip('/')}/pictures/a b/ü+/0.png".lstrip("/")}
    assert store.get(uri, 10_000) == BODY
    assert f"{path.rstrip('/')}/pictures/a%20b/" in store.presign(uri)


def test_the_bucket_may_stand_in_the_hosts_name(plain: PlainS3) -> None:
    """Names below localhost resolve to this machine."""
    endpoint = f"http://localhost:{plain.port}"
    store = new_store(endpoint, s3_addressing="virtual")
    assert store.presign("s3://pictures/a/0.png").startswith(f"http://pictures.localhost:{plain.port}/a/0.png?")
    path = new_store(endpoint)
    assert path.presign("s3://pictures/a/0.png").startswith(f"{endpoint}/pictures/a/0.png?")


def test_without_a_region_requests_are_signed_for_the_default_one(plain: PlainS3) -> None:
    for region, scope in ((" ", "/us-east-1/s3/"), ("eu-central-7", "/eu-central-7/s3/")):
        store_at(plain, s3_region=region).put("a", BODY, "image/png", sha(BODY))
        assert scope in plain.seen[-1].headers["authorization"]


def test_a_session_token_goes_with_requests_and_links(plain: PlainS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t0ken")
    new_store.cache_clear()
    store = store_at(plain)
    new_store.cache_clear()
    uri = store.put("a", BODY, "image/png", sha(BODY))
    assert plain.seen[0].headers["x-amz-security-token"] == "t0ken"
    assert "x-amz-security-token" in plain.seen[0].headers["authorization"], "it is signed"
    assert "X-Amz-Security-Token=t0ken" in store.presign(uri)


@pytest.mark.parametrize(
    ("status", "code", "retryable", "words"),
    [
        (503, "SlowDown", True, "busy"),
        (503, "ServiceUnavailable", True, "busy"),
        (500, "InternalError", True, "busy"),
        (400, "RequestTimeout", True, "busy"),
        (403, "RequestTimeTooSkewed", True, "clock is wrong"),
        (403, "AccessDenied", False, "upload_denied: .*denies access"),
        (403, "SignatureDoesNotMatch", False, "does not accept the credentials"),
        (400, "ExpiredToken", False, "does not accept the credentials"),
        (404, "NoSuchBucket", False, "no bucket pictures"),
        (413, "EntityTooLarge", False, "EntityTooLarge"),
        (507, "InsufficientStorage", True, "busy or broken"),
    ],
)
def test_each_refusal_says_whether_the_same_bytes_may_go_through_later(
    plain: PlainS3, status: int, code: str, retryable: bool, words: str
) -> None:
    plain.refusal = (status, code)
    with pytest.raises(UploadFailed, match=words) as caught:
        store_at(plain).put("a", BODY, "image/png", sha(BODY))
    assert caught.value.retryable is retryable
    assert plain.objects == {}


@hypothesis_settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prefix=st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=40))
@example("a b+c/ü//").via("minio/minio#6071")
@example("%2F%20%/?x=1&y#z").via("escapes")
@example("~'()*!;:@=$,&").via("what signers disagree on")
def test_any_prefix_comes_back_as_it_was(plain: PlainS3, prefix: str) -> None:
    store = store_at(plain)
    key = object_key("", prefix, "job", 1, 0, "png")
    uri = store.put(key, BODY, "image/png", sha(BODY))
    assert f"pictures/{key}" in plain.objects
    assert store.get(uri, 10_000) == BODY

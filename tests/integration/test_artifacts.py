"""The bucket: what goes in comes out, what fails says why. Real SeaweedFS, and a scripted front for its faults."""

from __future__ import annotations

import datetime
import hashlib
import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import botocore.auth
import httpx
import pytest

from tasks import artifacts as module
from tasks.artifacts import ArtifactStore, DownloadFailed, UploadFailed, object_key, parse_uri
from tasks.errors import ConfigError, StoreUnavailable
from tasks.local.process import free_port
from tasks.local.servers import S3Server
from tasks.settings import Settings

BODY = b"\x89PNG not really" * 50


def sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class Front:
    """Passes requests on to the store, Host kept; `script(method, path)` may answer with a status instead."""

    def __init__(self, upstream_port: int) -> None:
        self.statuses: list[int] = []
        self.fail_with: int | None = None
        self.methods = ("PUT", "POST", "GET", "HEAD")
        self.corrupt = False
        self.needle = ""
        self.seen: list[str] = []
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                front.seen.append(f"{self.command} {self.path}")
                if self.command in front.methods and front.needle in self.path:
                    status = front.statuses.pop(0) if front.statuses else front.fail_with
                    if status:
                        self.reply(status, {}, b"")
                        return
                if front.corrupt and self.command == "PUT":
                    self.reply(200, {"ETag": '"0"'}, b"")
                    return
                connection = http.client.HTTPConnection("127.0.0.1", upstream_port, timeout=20)
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                headers = {k: v for k, v in answer.getheaders() if k.lower() not in ("transfer-encoding", "connection")}
                self.reply(answer.status, headers, answer.read())
                connection.close()

            def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                if not any(name.lower() == "content-length" for name in headers):
                    headers["Content-Length"] = str(len(body))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@contextmanager
def front_of(port: int) -> Iterator[Front]:
    front = Front(port)
    try:
        yield front
    finally:
        front.server.shutdown()
        front.server.server_close()


@pytest.fixture
def front(s3_server: S3Server) -> Iterator[Front]:
    with front_of(s3_server.port) as opened:
        yield opened


@pytest.fixture
def store(settings: Settings) -> ArtifactStore:
    store = ArtifactStore(settings)
    store.ensure_bucket()
    return store


def through(settings: Settings, front: Front) -> ArtifactStore:
    ArtifactStore(settings).ensure_bucket()
    return ArtifactStore(settings.model_copy(update={"s3_endpoint_url": front.url}))


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        (("", "", "J", 1, 0, "png"), "J/1/0.png"),
        (("out", "a b+c/ü//", "J", 2, 3, "png"), "out/a b+c/ü/J/2/3.png"),
        (("/out//x/", "./..//a", "J", 2, 3, ".mp4"), "out/x/a/J/2/3.mp4"),
    ],
)
def test_object_keys_have_no_empty_parts(parts: tuple[str, str, str, int, int, str], key: str) -> None:
    assert object_key(*parts) == key


@pytest.mark.parametrize("uri", ["s3://", "s3://b", "s3://b/", "https://b/k", "b/k", ""])
def test_a_uri_without_bucket_and_key_is_refused(uri: str) -> None:
    with pytest.raises(DownloadFailed, match="s3://bucket/key"):
        parse_uri(uri)


def test_what_is_put_is_there_with_its_headers(store: ArtifactStore) -> None:
    uri = store.put("J/1/0.png", BODY, "image/png", sha(BODY), {"Prompt": "Grün\r\nX-Evil: 1", "seed": "7"})
    assert uri == f"s3://{store.bucket}/J/1/0.png"
    assert store.get(uri, 10_000) == BODY
    reply = httpx.get(store.presign(uri, content_disposition='attachment; filename="a.png"'))
    assert (reply.status_code, reply.content) == (200, BODY)
    assert reply.headers["content-type"] == "image/png"
    assert reply.headers["cache-control"] == "public,max-age=31536000,immutable"
    assert reply.headers["content-disposition"] == 'attachment; filename="a.png"'
    assert reply.headers["x-amz-meta-sha256"] == sha(BODY)
    assert reply.headers["x-amz-meta-prompt"] == "Gr\\xfcn X-Evil: 1"
    assert reply.headers["x-amz-meta-seed"] == "7"
    assert "x-evil" not in reply.headers


@pytest.mark.parametrize(
    "prefix", ["a b+c/ü//", "100%/?q=1&x#frag/", 'it\'s "quoted"/日本語/😀/', "~!*()=;:@,$/", "%20%2F/"]
)
@pytest.mark.parametrize("slash", ["", "/", "/ "])
def test_awkward_keys_come_back_through_presigned_urls(
    settings: Settings, store: ArtifactStore, prefix: str, slash: str
) -> None:
    store = ArtifactStore(settings.model_copy(update={"s3_endpoint_url": f" {settings.s3_endpoint_url}{slash}"}))
    uri = store.put(object_key("", prefix, "J", 1, 0, "png"), BODY, "image/png", sha(BODY))
    reply = httpx.get(store.presign(uri))
    assert (reply.status_code, reply.content) == (200, BODY)
    assert store.get(uri, 10_000) == BODY


def test_presigned_urls_carry_and_sign_the_public_host(settings: Settings, store: ArtifactStore) -> None:
    public = f"http://localhost:{(settings.s3_endpoint_url or '').rpartition(':')[2]}/"
    uri = store.put("J/1/0.png", BODY, "image/png", sha(BODY))
    signed = ArtifactStore(settings.model_copy(update={"s3_public_endpoint_url": public})).presign(uri)
    assert signed.startswith(f"{public}{store.bucket}/J/1/0.png?")
    transport = httpx.HTTPTransport(local_address="127.0.0.1")  # the server listens on IPv4 only
    with httpx.Client(transport=transport) as client:
        assert client.get(signed).content == BODY
    inside = signed.replace("localhost", "127.0.0.1", 1)
    assert httpx.get(inside).status_code == 403, "the signature does not cover the host"


def test_an_expired_url_is_refused_and_the_lifetime_is_bounded(store: ArtifactStore) -> None:
    uri = store.put("J/1/0.png", BODY, "image/png", sha(BODY))
    assert "X-Amz-Expires=604800" in store.presign(uri, expires_s=10**9)
    assert "X-Amz-Algorithm=AWS4-HMAC-SHA256" in store.presign(uri)


def test_a_large_file_goes_up_in_parts(store: ArtifactStore, tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    path.write_bytes(bytes(range(256)) * (65_536 + 4_096))
    body = path.read_bytes()
    uri = store.put("J/1/0.mp4", path, "video/mp4", sha(body))
    assert store.get(uri, len(body)) == body
    assert httpx.get(store.presign(uri)).headers["etag"].endswith('-2"')


def test_a_broken_multipart_upload_is_aborted(settings: Settings, front: Front) -> None:
    store = through(settings, front)
    front.needle, front.methods, front.fail_with = "partNumber=2", ("PUT",), 500
    body = bytes(module.MULTIPART_BYTES + 1)
    with pytest.raises(UploadFailed) as caught:
        store.put("J/1/0.mp4", body, "video/mp4", sha(body))
    assert caught.value.retryable
    assert any(line.startswith("DELETE") and "uploadId=" in line for line in front.seen)
    assert "Uploads" not in store._client.list_multipart_uploads(Bucket=store.bucket)


def test_two_errors_of_the_store_are_ridden_out(settings: Settings, front: Front) -> None:
    store = through(settings, front)
    front.methods, front.statuses = ("PUT",), [500, 503]
    uri = store.put("J/1/0.png", BODY, "image/png", sha(BODY))
    assert store.get(uri, 10_000) == BODY
    assert [line.split()[0] for line in front.seen[:4]] == ["PUT", "PUT", "PUT", "HEAD"]


@pytest.mark.parametrize(
    ("status", "retryable", "words"),
    [(403, False, "upload_denied"), (404, False, "upload_denied"), (500, True, "busy or broken"), (429, True, "busy")],
)
def test_a_lasting_refusal_says_whether_to_try_again(
    settings: Settings, front: Front, status: int, retryable: bool, words: str
) -> None:
    store = through(settings, front)
    front.methods, front.fail_with = ("PUT",), status
    with pytest.raises(UploadFailed, match=words) as caught:
        store.put("J/1/0.png", BODY, "image/png", sha(BODY))
    assert caught.value.retryable is retryable
    assert "upload_denied" in caught.value.message or retryable
    assert len(front.seen) == (3 if status >= 500 or status == 429 else 1)


def bend_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """As this process sees it, botocore's signatures included."""
    real, moment = time.time, botocore.auth.get_current_datetime
    monkeypatch.setattr(time, "time", lambda: real() + seconds)
    shifted = lambda *args: moment(*args) + datetime.timedelta(seconds=seconds)  # noqa: E731
    monkeypatch.setattr(botocore.auth, "get_current_datetime", shifted)


@pytest.mark.parametrize("seconds", [7200, -7200])
def test_a_wrong_clock_of_this_machine_is_nothing_final(
    settings: Settings, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    uri = store.put("a", BODY, "image/png", sha(BODY))
    with monkeypatch.context() as bent:
        bend_clock(bent, seconds)
        with pytest.raises(UploadFailed, match="clock is wrong") as caught:
            store.put("b", BODY, "image/png", sha(BODY))
        assert caught.value.retryable
        with pytest.raises(StoreUnavailable, match="clock is wrong"):
            store.get(uri, 2**20)
        with pytest.raises(StoreUnavailable, match="clock is wrong"):
            store.probe()
    assert store.put("b", BODY, "image/png", sha(BODY))


def test_a_clock_that_jumps_between_upload_and_check_is_nothing_final(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = store._client.put_object

    def then_jump(*args: Any, **kwargs: Any) -> None:
        upload(*args, **kwargs)
        bend_clock(monkeypatch, 7200)

    monkeypatch.setattr(store._client, "put_object", then_jump)
    with pytest.raises(UploadFailed, match="clock is wrong") as caught:
        store.put("a", BODY, "image/png", sha(BODY))
    assert caught.value.retryable


def test_an_upload_that_the_store_lost_or_holds_otherwise_is_not_a_success(settings: Settings, front: Front) -> None:
    store = through(settings, front)
    front.corrupt = True
    with pytest.raises(UploadFailed, match="lost it") as caught:
        store.put("J/1/0.png", BODY, "image/png", sha(BODY))
    assert caught.value.retryable
    front.corrupt = False
    store.put("J/1/0.png", BODY[::-1], "image/png", sha(BODY))  # same size and claimed hash, other bytes
    front.corrupt = True
    with pytest.raises(UploadFailed, match="MD5"):
        store.put("J/1/0.png", BODY, "image/png", sha(BODY))
    with pytest.raises(UploadFailed, match="bytes instead of"):
        store.put("J/1/0.png", BODY[1:], "image/png", sha(BODY))
    with pytest.raises(UploadFailed, match="sha256"):
        store.put("J/1/0.png", BODY[::-1], "image/png", sha(BODY[::-1]))


def test_a_file_that_cannot_be_read_is_not_blamed_on_the_store(store: ArtifactStore, tmp_path: Path) -> None:
    with pytest.raises(UploadFailed, match="cannot read the file") as caught:
        store.put("J/1/0.mp4", tmp_path / "absent", "video/mp4", "0")
    assert not caught.value.retryable


def test_get_is_bounded_and_tells_missing_from_unreachable(settings: Settings, store: ArtifactStore) -> None:
    uri = store.put("J/1/0.png", BODY, "image/png", sha(BODY))
    with pytest.raises(DownloadFailed, match=f"at most {len(BODY) - 1}"):
        store.get(uri, len(BODY) - 1)
    with pytest.raises(DownloadFailed, match="NoSuchKey"):
        store.get(f"s3://{store.bucket}/absent", 10)
    down = ArtifactStore(settings.model_copy(update={"s3_endpoint_url": f"http://127.0.0.1:{free_port()}"}))
    with pytest.raises(StoreUnavailable, match="refuses connections"):
        down.get(uri, 10_000)


def test_delete_takes_what_is_there_and_what_is_not(store: ArtifactStore) -> None:
    uri = store.put("a b/ü/0.png", BODY, "image/png", sha(BODY))
    store.delete(["a b/ü/0.png", "absent"])
    store.delete([])
    with pytest.raises(DownloadFailed):
        store.get(uri, 10_000)


def test_the_bucket_is_made_once_whoever_comes_first(settings: Settings) -> None:
    stores = [ArtifactStore(settings) for _ in range(4)]
    failures: list[BaseException] = []

    def ensure(store: ArtifactStore) -> None:
        try:
            store.ensure_bucket()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ensure, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    stores[0].probe()


def test_ensure_bucket_waits_for_a_store_that_starts(settings: Settings, front: Front) -> None:
    front.statuses = [503] * 4
    ArtifactStore(settings.model_copy(update={"s3_endpoint_url": front.url})).ensure_bucket()


def test_uploads_from_many_threads_share_one_client(store: ArtifactStore) -> None:
    bodies = [bytes([n]) * 1000 for n in range(24)]
    uris: dict[int, str] = {}

    def upload(n: int) -> None:
        uris[n] = store.put(f"J/1/{n}.png", bodies[n], "image/png", sha(bodies[n]))

    threads = [threading.Thread(target=upload, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [store.get(uris[n], 2000) for n in range(24)] == bodies


class TestProbe:
    """Each first-run mistake has its own words."""

    def refuses(self, settings: Settings, words: str, **changes: str) -> None:
        with pytest.raises(StoreUnavailable, match=words) as caught:
            ArtifactStore(settings.model_copy(update=changes)).probe()
        assert "\n" not in str(caught.value)

    def test_it_passes_when_all_is_well(self, store: ArtifactStore) -> None:
        store.probe()

    def test_nobody_listens(self, settings: Settings) -> None:
        self.refuses(settings, "refuses connections", s3_endpoint_url=f"http://127.0.0.1:{free_port()}")

    def test_unknown_host(self, settings: Settings) -> None:
        self.refuses(settings, "does not resolve", s3_endpoint_url="http://s3.invalid:8333")

    def test_https_against_http(self, settings: Settings) -> None:
        url = (settings.s3_endpoint_url or "").replace("http:", "https:")
        self.refuses(settings, "no TLS", s3_endpoint_url=url)

    def test_no_bucket(self, settings: Settings) -> None:
        self.refuses(settings, "no bucket absent-bucket .*SAFELIGHT_S3_BUCKET", s3_bucket="absent-bucket")

    @pytest.mark.parametrize(
        ("status", "words"),
        [
            (403, "denies access"),
            (404, "is this an S3 endpoint"),
            (301, "SAFELIGHT_S3_REGION"),
            (503, "busy or broken"),
        ],
    )
    def test_answers_without_a_body(self, settings: Settings, front: Front, status: int, words: str) -> None:
        front.fail_with = status
        self.refuses(settings, words, s3_endpoint_url=front.url)

    def test_wrong_secret(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        self.refuses(settings, "does not accept the credentials .SignatureDoesNotMatch")

    def test_no_credentials(self, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        self.refuses(settings, "no credentials for .*AWS_ACCESS_KEY_ID")
        with pytest.raises(UploadFailed, match=r"upload_denied: .*no credentials"):
            ArtifactStore(settings).put("k", BODY, "image/png", sha(BODY))

    @pytest.mark.parametrize("url", ["localhost:8333", "ftp://h", "http://", "http://user@h", "http://a b"])
    def test_an_endpoint_that_is_no_url_stops_the_start(self, settings: Settings, url: str) -> None:
        with pytest.raises(ConfigError, match="SAFELIGHT_S3_ENDPOINT_URL"):
            ArtifactStore(settings.model_copy(update={"s3_endpoint_url": url}))

"""Pictures by data:, s3:// and https:// URI: what arrives, what is refused, and whose fault it is."""

from __future__ import annotations

import base64
import hashlib
import io
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from PIL import Image

from tasks import inputs as module
from tasks.artifacts import ArtifactStore
from tasks.errors import StoreUnavailable
from tasks.inputs import InputLoader, InvalidImage
from tasks.local.process import free_port
from tasks.settings import Settings


def red_png(size: tuple[int, int] = (8, 8)) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size, (255, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


class Site:
    """A web site with one page for each way to misbehave."""

    def __init__(self) -> None:
        self.hits: list[str] = []
        self.cookies: list[str | None] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.hits.append(self.path)
                site.cookies.append(self.headers.get("Cookie"))
                kind, _, rest = self.path.lstrip("/").partition("/")
                getattr(self, f"page_{kind}")(rest)

            def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(body)

            def page_ok(self, _: str) -> None:
                self.answer(200, red_png(), Set_Cookie="visitor=1")

            def page_status(self, rest: str) -> None:
                self.answer(int(rest))

            def page_hop(self, rest: str) -> None:
                left = int(rest)
                self.answer(302, Location=f"/hop/{left - 1}" if left > 1 else "/ok")

            def page_to(self, rest: str) -> None:
                self.answer(302, Location=rest)

            def page_announced(self, _: str) -> None:
                self.answer(200, b"", Content_Length=str(module.MAX_INPUT_BYTES + 1))

            def page_endless(self, _: str) -> None:
                self.answer(200)
                try:
                    for _number in range(400):
                        self.wfile.write(bytes(256 * 1024))
                except OSError:
                    pass

            def page_drip(self, _: str) -> None:
                self.answer(200, red_png()[:40])
                try:
                    for _number in range(200):
                        self.wfile.write(b"a")
                        time.sleep(0.05)
                except OSError:
                    pass

            def page_short(self, _: str) -> None:
                self.answer(200, red_png(), Content_Length="9999")

            def page_gzip(self, _: str) -> None:
                self.answer(200, red_png(), Content_Encoding="gzip")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def site() -> Iterator[Site]:
    opened = Site()
    yield opened
    opened.server.shutdown()
    opened.server.server_close()


@pytest.fixture
def store(settings: Settings) -> ArtifactStore:
    store = ArtifactStore(settings)
    store.ensure_bucket()
    return store


@pytest.fixture
def loader(settings: Settings, store: ArtifactStore) -> InputLoader:
    return InputLoader(settings.model_copy(update={"allow_private_urls": True}), store)


@pytest.fixture
def strict(settings: Settings, store: ArtifactStore) -> InputLoader:
    return InputLoader(settings, store)


def data_uri(body: bytes, head: str = "data:image/png;base64,") -> str:
    return head + base64.b64encode(body).decode()


def test_a_data_uri(strict: InputLoader) -> None:
    loaded = strict.load_image(data_uri(red_png()), "image")
    assert (loaded.image.mode, loaded.image.size, loaded.warnings) == ("RGB", (8, 8), ())
    assert loaded.image.getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize("form", ["unpadded", "wrapped", "escaped", "no type"])
def test_data_uris_as_people_write_them(strict: InputLoader, form: str) -> None:
    uri = data_uri(red_png())
    forms = {
        "unpadded": uri.rstrip("="),
        "wrapped": uri[:60] + "\r\n" + uri[60:],
        "escaped": uri.replace("+", "%2B").replace("/", "%2F").replace("image%2F", "image/"),
        "no type": data_uri(red_png(), "data:;base64,"),
    }
    assert strict.load_image(forms[form], "image").image.size == (8, 8)


@pytest.mark.parametrize(
    "uri", ["data:", "data:image/png,abc", "data:;base64,ÄÖ", "data:;base64,****", "data:;base64,"]
)
def test_data_uris_that_hold_no_picture(strict: InputLoader, uri: str) -> None:
    with pytest.raises(InvalidImage) as caught:
        strict.load_image(uri, "mask_image")
    assert (caught.value.field, caught.value.error_type) == ("mask_image", "invalid_image")


def test_a_data_uri_is_bounded(strict: InputLoader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_INPUT_BYTES", len(red_png()) - 1)
    with pytest.raises(InvalidImage, match="larger than"):
        strict.load_image(data_uri(red_png()), "image")
    with pytest.raises(InvalidImage, match="larger than"):
        strict.load_image("data:;base64," + "A" * 4096, "image")


def test_a_mask_is_grey_and_both_are_fitted(strict: InputLoader) -> None:
    mask = strict.load_image(data_uri(red_png()), "mask_image", size=(16, 8))
    assert (mask.image.mode, mask.image.size) == ("L", (16, 8))
    assert mask.warnings == ("mask_image resized from 8x8 to 16x8, which changes its aspect ratio",)


def test_an_object_of_the_own_bucket(strict: InputLoader, store: ArtifactStore) -> None:
    uri = store.put("in/a b.png", red_png(), "image/png", hashlib.sha256(red_png()).hexdigest())
    assert strict.load_image(uri, "image").image.size == (8, 8)
    with pytest.raises(InvalidImage, match="NoSuchKey"):
        strict.load_image(f"s3://{store.bucket}/absent", "image")
    with pytest.raises(InvalidImage, match=f"only objects of s3://{store.bucket}/ can be read"):
        strict.load_image("s3://other-bucket/a.png", "image")
    with pytest.raises(InvalidImage, match="s3://bucket/key"):
        strict.load_image("s3://", "image")


def test_other_buckets_stay_shut_although_the_credentials_open_them(settings: Settings, store: ArtifactStore) -> None:
    other = ArtifactStore(settings.model_copy(update={"s3_bucket": f"{store.bucket}-other"}))
    other.ensure_bucket()
    for key in ("public/a.png", "secret.png"):
        other.put(key, red_png(), "image/png", hashlib.sha256(red_png()).hexdigest())
    assert store.get(f"s3://{other.bucket}/secret.png", 10_000) == red_png(), "the credentials do open it"
    strict = InputLoader(settings, store)
    listed = InputLoader(settings.model_copy(update={"input_buckets": f"{other.bucket}/public"}), store)
    assert listed.load_image(f"s3://{other.bucket}/public/a.png", "image").image.size == (8, 8)
    for loader, uri in (
        (strict, f"s3://{other.bucket}/secret.png"),
        (strict, f"s3://{store.bucket}/../{other.bucket}/secret.png"),
        (listed, f"s3://{other.bucket}/secret.png"),
        (listed, f"s3://{other.bucket}/public/../secret.png"),
        (listed, f"s3://{store.bucket}/a.png"),
    ):
        with pytest.raises(InvalidImage, match="only objects of"):
            loader.load_image(uri, "image")


def test_a_store_that_is_away_is_not_the_requests_fault(settings: Settings) -> None:
    changed = settings.model_copy(update={"s3_endpoint_url": f"http://127.0.0.1:{free_port()}"})
    with pytest.raises(StoreUnavailable):
        InputLoader(changed, ArtifactStore(changed)).load_image(f"s3://{changed.s3_bucket}/a.png", "image")


def test_a_picture_from_the_web(loader: InputLoader, site: Site) -> None:
    for page in ("/ok", "/hop/3", "/to//ok"):
        assert loader.load_image(site.url + page, "image").image.size == (8, 8)
    assert set(site.cookies) == {None}, "one job's cookie reached another's fetch"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("/status/404", "answered 404"),
        ("/status/503", "answered 503"),
        ("/status/204", "answered 204"),
        ("/hop/4", "more than 3 redirects"),
        ("/to/ftp://127.0.0.1/a", "ftp where https is needed"),
        ("/to/file:///etc/passwd", "file where https is needed"),
        ("/to/", "redirects|fetched"),
        ("/announced", "larger than"),
        ("/endless", "larger than"),
        ("/short", "cannot be fetched: RemoteProtocolError"),
        ("/gzip", "compressed"),
    ],
)
def test_sites_that_misbehave(loader: InputLoader, site: Site, page: str, words: str) -> None:
    with pytest.raises(InvalidImage, match=words):
        loader.load_image(site.url + page, "image")


def test_a_drip_is_cut_in_time(loader: InputLoader, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FETCH_TIMEOUT_S", 1.0)
    started = time.monotonic()
    with pytest.raises(InvalidImage, match="cannot be fetched in"):
        loader.load_image(site.url + "/drip", "image")
    assert time.monotonic() - started < 6


def test_nobody_listens(loader: InputLoader) -> None:
    with pytest.raises(InvalidImage, match="ConnectError"):
        loader.load_image(f"http://127.0.0.1:{free_port()}/a", "image")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "[::1]"])
def test_private_hosts_are_not_even_asked(strict: InputLoader, site: Site, host: str) -> None:
    for scheme in ("http", "https"):
        with pytest.raises(InvalidImage, match="cannot be fetched"):
            strict.load_image(f"{scheme}://{host}:{site.port}/ok", "image")
    assert site.hits == []


def test_a_redirect_into_the_private_network_is_not_followed(
    settings: Settings, store: ArtifactStore, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first host counts as public here, the second is refused although the name resolves to the same machine."""
    real = socket.getaddrinfo

    def named(host: str, *rest: object, **options: object) -> object:
        return real("127.0.0.1" if host == "public.test" else host, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", named)
    checked: list[str] = []

    def once(address: str) -> bool:
        checked.append(address)
        return len(checked) == 1

    monkeypatch.setattr("tasks.ssrf.is_public", once)
    loader = InputLoader(settings, store)
    monkeypatch.setattr(loader, "_checked", lambda url, field: url)  # plain http, so that the guard alone decides
    with pytest.raises(InvalidImage, match="not on the public internet"):
        loader.load_image(f"http://public.test:{site.port}/to/http://127.0.0.1:{site.port}/ok", "image")
    assert len(checked) == 2 and len(site.hits) == 1


@pytest.mark.parametrize(
    "uri", ["http://", "https://", "https://a b/", "https://[::1", "https://h:99999/", "https://\x7f/"]
)
def test_urls_that_are_none(strict: InputLoader, uri: str) -> None:
    with pytest.raises(InvalidImage):
        strict.load_image(uri, "image")

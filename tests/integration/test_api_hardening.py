"""What a hostile or careless caller meets: slow and odd bodies, headers of every answer, pages of other origins."""

from __future__ import annotations

import gzip
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from pydantic import SecretStr

from api_stub import body
from api_stub.patience import PatientProtocol
from api_stub.testing import running_api
from tasks.local.process import free_port
from tasks.local.servers import RedisServer
from tasks.settings import Settings, read_settings

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def plain(redis_server: RedisServer) -> Settings:
    """No object store is asked for anything here."""
    return Settings(redis_url=redis_server.url, key_prefix="hard:", s3_endpoint_url=f"http://127.0.0.1:{free_port()}")


@pytest.fixture(scope="module")
def api(plain: Settings) -> Iterator[httpx.Client]:
    with running_api(plain) as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client


def raw(api: httpx.Client) -> socket.socket:
    return socket.create_connection((api.base_url.host, api.base_url.port or 80), timeout=20)


def until_closed(connection: socket.socket) -> bytes:
    """All that the server says until it closes; fails after the socket's own timeout."""
    parts = []
    while part := connection.recv(65_536):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("path", ["/v1/jobs/", "/v1/models/", "/docs/", "/page", "/healthz/"])
def test_a_slash_too_many_leads_to_no_other_host(api: httpx.Client, path: str) -> None:
    reply = api.get(path, headers={"Host": "evil.example"}, follow_redirects=False)
    assert (reply.status_code, "location" in reply.headers) == (404, False)
    assert "evil.example" not in reply.text
    assert path == "/page" or "ends in a slash" in reply.json()["detail"]


def test_odd_bodies(api: httpx.Client) -> None:
    packed = gzip.compress(b'{"prompt": "a"}')
    for coding in ("gzip", "deflate", "br", "identity, gzip"):
        reply = api.post("/v1/jobs", content=packed, headers=JSON | {"Content-Encoding": coding})
        assert (reply.status_code, "Content-Encoding" in reply.json()["detail"]) == (415, True)
    for twice in (b'{"prompt": "a", "prompt": "b"}', b'{"prompt": "a", "metadata": {"k": {"x": 1, "\\u0078": 2}}}'):
        reply = api.post("/v1/jobs", content=twice, headers=JSON)
        assert (reply.status_code, "twice" in reply.json()["detail"]) == (400, True)
    many = b'{"jobs": [' + b",".join([b'{"prompt": "a"}'] * 1_001) + b"]}"
    assert api.post("/v1/jobs/batch", content=many, headers=JSON).status_code == 422
    for value in (b"true", b"1e400", b"-Infinity", b"1" * 5_000, b'"1e309"'):
        reply = api.post("/v1/jobs", content=b'{"prompt": "a", "guidance_scale": ' + value + b"}", headers=JSON)
        assert reply.status_code in (400, 422), value
    assert not [job for job in api.get("/v1/jobs").json()["jobs"] if job["request"]["prompt"] == "a"]


def test_a_duplicate_at_the_end_of_a_long_object_is_found_at_once(api: httpx.Client) -> None:
    names = ",".join(f'"n{number}": 0' for number in [*range(200_000), 199_999])
    started = time.monotonic()
    assert api.post("/v1/jobs", content=f"{{{names}}}", headers=JSON).status_code == 400
    assert time.monotonic() - started < 10


def test_a_body_that_does_not_come_is_not_waited_for(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "BODY_S", 0.3)
    for framing in (b"Content-Length: 100", b"Transfer-Encoding: chunked"):
        with raw(api) as connection:
            head = b"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" + framing + b"\r\n\r\n"
            connection.sendall(head + (b"5\r\n" if b"chunked" in framing else b"") + b"{    ")
            answer = until_closed(connection)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in answer.lower()


def test_after_a_413_the_rest_is_not_read(plain: Settings) -> None:
    small = plain.model_copy(update={"max_body_bytes": 2_000})
    with running_api(small) as url, httpx.Client(base_url=url) as api, raw(api) as connection:
        head = (
            b"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n"
        )
        connection.sendall(head)
        answer = until_closed(connection)
        assert answer.startswith(b"HTTP/1.1 413 ") and b"connection: close" in answer.lower()


def test_a_head_that_does_not_come_is_not_waited_for(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "head_s", 0.2)
    for said in (b"", b"G", b"GET / HTTP/1.1\r\nX: y\r\n"):
        with raw(api) as connection:
            connection.sendall(said)
            assert until_closed(connection) == b""
    with raw(api) as connection:  # also not after a good request on the same connection
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = b""
        while b'"alive"' not in answer:
            more = connection.recv(65_536)
            assert more, answer
            answer += more
        connection.sendall(b"GET /heal")
        assert until_closed(connection) == b""


def test_whoever_waits_for_an_answer_is_left_alone(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "head_s", 0.1)
    job = api.post("/v1/jobs", json={"prompt": "patient"}).json()
    assert api.get(f"/v1/jobs/{job['id']}?wait=0.5").json()["status"] == "queued"


def test_every_answer_is_private_data_and_no_document(plain: Settings) -> None:
    locked = plain.model_copy(update={"api_keys": SecretStr("key")})
    with running_api(locked) as url, httpx.Client(base_url=url, headers={"Authorization": "Bearer key"}) as api:
        job = api.post("/v1/jobs", json={"prompt": "<script>"})
        answers = [
            job,
            *(api.get(f"/v1/jobs{path}") for path in ("", f"/{job.json()['id']}", "/unknown", "?limit=x")),
            *(api.get(path) for path in ("/v1/models", "/v1/workers", "/metrics", "/readyz", "/openapi.json", "/none")),
            httpx.get(url + "/v1/jobs"),
            httpx.get(url + "/v1/jobs", headers={"Authorization": "Bearer wrong"}),
            api.post(f"/v1/jobs/{job.json()['id']}/abort"),
        ]
    for answer in answers:
        assert answer.headers["cache-control"] == "no-store", answer.url
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        kind = answer.headers["content-type"]
        assert kind.startswith(("application/json", "application/problem+json", "text/plain")), kind
        assert "server" not in answer.headers


def test_pages_of_other_origins_get_nothing_unless_they_are_listed(plain: Settings) -> None:
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    listed = plain.model_copy(update={"cors_origins": "https://shop.example, http://localhost:3000"})
    with running_api(plain) as shut, running_api(listed) as ajar:
        for url, origin, allowed in (
            (shut, "https://shop.example", False),
            (ajar, "https://shop.example", True),
            (ajar, "http://localhost:3000", True),
            (ajar, "https://shop.example.evil.example", False),
            (ajar, "null", False),
        ):
            asked = httpx.options(url + "/v1/jobs", headers=preflight | {"Origin": origin})
            got = httpx.get(url + "/v1/jobs", headers={"Origin": origin})
            for reply in (asked, got):
                assert reply.headers.get("access-control-allow-origin") == (origin if allowed else None)
                assert "access-control-allow-credentials" not in reply.headers
            assert asked.is_success is allowed
        # Without a preflight a page can send text only, and that is not read.
        sneaked = httpx.post(shut + "/v1/jobs", content=b'{"prompt": "a"}', headers={"Content-Type": "text/plain"})
        assert sneaked.status_code == 415


@pytest.mark.parametrize(
    "origins", ["evil.example", "https://a/b", "https://a,", "javascript:x", "https://a b", "null"]
)
def test_a_list_of_origins_that_is_none_stops_the_start(origins: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT_CORS_ORIGINS", origins)
    with pytest.raises(ValueError, match=r"^SAFELIGHT_CORS_ORIGINS: "):
        read_settings()


def test_the_one_svg_is_ours_and_may_run_nothing(api: httpx.Client) -> None:
    icon = api.get("/page/favicon.svg")
    assert icon.headers["content-type"] == "image/svg+xml"
    assert "script-src 'self'" in icon.headers["content-security-policy"]
    assert "<script" not in icon.text and "default-src 'none'" in icon.headers["content-security-policy"]

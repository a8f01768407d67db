"""Which hosts a stranger's URL may reach, and that no trick with names, redirects or time gets around it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from tasks.ssrf import Deadline, ForbiddenAddress, GuardedTransport, checked_addresses, is_public

PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
PRIVATE = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe",
    "::ffff:0:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fe80::a9fe:a9fe%1",
    "::1%lo",
    "fec0::1",
    "ff02::1",
    "not an address",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_everything_else_is_not(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "017700000001",
        "0177.0.0.1",
        "0x7f000001",
        "0x7f.0.0.1",
        "0X7F.1",
        "134744072",  # 8.8.8.8: public, but nobody writes it so in good faith
        "127.0.0.1.",
        "0",
        "::1",
        "::ffff:127.0.0.1",
        "169.254.169.254",
        "[::1]",
        "a" * 64 + ".example",
        "..",
        "nowhere.invalid",
    ],
)
def test_hosts_that_are_refused(host: str) -> None:
    with pytest.raises(ForbiddenAddress):
        checked_addresses(host, 80, allow_private=False)


def test_private_hosts_can_be_allowed() -> None:
    assert checked_addresses("127.0.0.1", 80, allow_private=True) == ["127.0.0.1"]
    assert set(checked_addresses("localhost", 80, allow_private=True)) <= {"127.0.0.1", "::1"}


class Names:
    """A name server of the test's own: each lookup takes the next answer, the last one stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[list[str]] = []
        self.lookups: list[str] = []
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._answer)

    def _answer(self, host: str, port: int, *rest: object, **options: object) -> list[object]:
        if isinstance(host, str) and host.endswith(".test"):
            self.lookups.append(host)
            found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]
        return self._real(host, port, *rest, **options)  # type: ignore[arg-type]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


def test_one_private_address_among_public_ones_is_enough_to_refuse(names: Names) -> None:
    names.answers = [["8.8.8.8", "127.0.0.1"]]
    with pytest.raises(ForbiddenAddress) as caught:
        checked_addresses("mixed.test", 80, allow_private=False)
    assert "127.0.0.1" not in str(caught.value), "the producer learns no address of the inner network"


def test_a_silent_name_server_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [] if time.sleep(4) is None else None)
    started = time.monotonic()
    with pytest.raises(ForbiddenAddress, match="no answer"):
        checked_addresses("slow.test", 80, allow_private=False, timeout_s=0.1)
    assert time.monotonic() - started < 3


@pytest.fixture
def listener() -> Iterator[Callable[[Callable[[socket.socket], None]], int]]:
    """Serves each connection with the given function; gives the port."""
    opened: list[socket.socket] = []

    def serve(answer: Callable[[socket.socket], None]) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        opened.append(server)

        def loop() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=loop, daemon=True).start()
        port: int = server.getsockname()[1]
        return port

    yield serve
    for server in opened:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


Serve = Callable[[Callable[[socket.socket], None]], int]


def test_the_checked_address_is_the_one_connected_to(names: Names, listener: Serve) -> None:
    """DNS rebinding: the second answer is another one, and must never be asked for."""
    asked: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        with connection:
            asked.append(connection.recv(65_536))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")

    port = listener(answer)
    names.answers = [["127.0.0.1"], ["127.0.0.2"]]
    reply = GuardedTransport(allow_private=True).handle_request(httpx.Request("GET", f"http://pictures.test:{port}/a"))
    assert reply.read() == b"ok"
    assert names.lookups == ["pictures.test"]
    assert f"Host: pictures.test:{port}".encode() in asked[0]


def test_a_dead_address_gives_way_to_the_next(names: Names, listener: Serve) -> None:
    def answer(connection: socket.socket) -> None:
        with connection:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    port = listener(answer)
    names.answers = [["127.0.0.9", "127.0.0.1"]]
    transport = GuardedTransport(allow_private=True)
    assert transport.handle_request(httpx.Request("GET", f"http://two.test:{port}/")).status_code == 200


def test_tls_asks_for_the_hosts_name(names: Names, listener: Serve) -> None:
    hello: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        with connection:
            hello.append(connection.recv(65_536))

    port = listener(answer)
    names.answers = [["127.0.0.1"]]
    with pytest.raises(httpx.TransportError):
        GuardedTransport(allow_private=True).handle_request(httpx.Request("GET", f"https://pictures.test:{port}/"))
    assert b"pictures.test" in hello[0]


@pytest.mark.parametrize("url", ["http://user:secret@8.8.8.8/", "ftp://8.8.8.8/", "http:///a", "file:///etc/passwd"])
def test_urls_that_no_guard_can_judge_are_refused(url: str) -> None:
    with pytest.raises((ForbiddenAddress, httpx.UnsupportedProtocol)):
        GuardedTransport().handle_request(httpx.Request("GET", url))


INSIDE = [
    "http://8.8.8.8@127.0.0.1/",
    "http://8.8.8.8:80@127.0.0.1:80/",
    "http://127.0.0.1#@8.8.8.8/",
    "http://127.0.0.1?@8.8.8.8/",
    "http://127.0.0.1\\@8.8.8.8/",
    "http://127.0.0.1%2f@8.8.8.8/",
    "http://①②⑦.⓪.⓪.①/",
    "http://１２７.0.0.1/",
    "http://127。0。0。1/",
    "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/",
    "http://LOCALHOST./",
    "http://0300.0250.1.1/",
    "http://[fe80::1%25eth0]/",
    "http://[::ffff:7f00:1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:7f00:1::]/",
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.170.2/v2/credentials",
    "http://100.100.100.200/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://127.0.0.1:80#.example.com/",
    "http:\\\\127.0.0.1\\",
]


@pytest.mark.parametrize("url", INSIDE)
def test_no_spelling_leads_inside(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(_: object, request: httpx.Request) -> httpx.Response:
        raise AssertionError(f"it connects to {request.url}")

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", connect)
    with pytest.raises((ForbiddenAddress, httpx.InvalidURL)):
        GuardedTransport().handle_request(httpx.Request("GET", url))


@pytest.mark.parametrize("port", [22, 25, 53, 110, 6000, 6379, 6667, 11211])
def test_ports_of_other_protocols_are_refused(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = httpx.Response(204)
    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", lambda *_: answer)
    with pytest.raises(ForbiddenAddress, match=f"port {port}"):
        GuardedTransport().handle_request(httpx.Request("GET", f"http://8.8.8.8:{port}/"))
    for web in (80, 443, 8080, 8443):
        assert GuardedTransport().handle_request(httpx.Request("GET", f"http://8.8.8.8:{web}/")) is answer


@pytest.mark.parametrize("slow", ["headers", "body", "silence"])
def test_a_deadline_ends_what_drips(slow: str, listener: Serve) -> None:
    def answer(connection: socket.socket) -> None:
        with connection:
            with contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + (b"\r\n" if slow == "body" else b""))
                while slow != "silence":
                    connection.sendall(b"a")
                    time.sleep(0.05)
                time.sleep(10)

    url = f"http://127.0.0.1:{listener(answer)}/"
    transport = GuardedTransport(allow_private=True)
    started = time.monotonic()
    with Deadline(1.0) as deadline:
        request = httpx.Request("GET", url, extensions=deadline.extensions)
        with contextlib.suppress(httpx.TransportError):
            transport.handle_request(request).read()
        assert deadline.remaining_s == 0
    assert time.monotonic() - started < 4


def test_a_deadline_counts_names_and_every_address(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses that swallow packets: two are tried for as long as there is time, the third is not."""
    names.answers = [["127.0.0.1", "127.0.0.2", "127.0.0.3"]]
    tried: list[dict[str, float]] = []

    def swallow(_: object, request: httpx.Request) -> httpx.Response:
        tried.append(request.extensions["timeout"])
        time.sleep(0.9)
        raise httpx.ConnectTimeout("nothing came back")

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", swallow)
    transport = GuardedTransport(allow_private=True)
    with Deadline(1.5) as deadline:
        request = httpx.Request("GET", "http://hole.test/", extensions=deadline.extensions)
        with pytest.raises(httpx.ConnectTimeout):
            transport.handle_request(request)
    assert len(tried) == 2
    assert tried[1]["connect"] <= 0.6 < tried[0]["connect"] <= 1.5

"""HTTP to hosts that strangers name: public addresses only, and the address that was checked is the one connected to.

Knows nothing of images or webhooks. Proxies of the environment are not used, as they would resolve names again.
"""

from __future__ import annotations

import contextlib
import ipaddress
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import httpx

from tasks.errors import SafelightError

_DNS_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT_S = 4.0
_DEFAULT_TIMEOUT_S = 10.0
_MAX_ADDRESSES = 3
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Beside what `ipaddress` knows as not global (its lists differ between Python versions).
_REFUSED_V4 = [
    ipaddress.IPv4Network(text)
    for text in (
        "100.64.0.0/10",  # carrier-grade NAT; Alibaba's metadata service
        "168.63.129.16/32",  # Azure's host agent
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata service
        "192.88.99.0/24",  # 6to4 relays
        "198.18.0.0/15",
        "240.0.0.0/4",
    )
]
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_REFUSED_V6 = [ipaddress.IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]
#: Below 1024 only these; above all but those that the Fetch standard blocks, which speak other protocols.
_WEB_PORTS = frozenset({80, 443})
_OTHER_PORTS = frozenset(
    {
        1719,
        1720,
        1723,
        2049,
        3659,
        4045,
        4190,
        5060,
        5061,
        6000,
        6379,
        6566,
        *range(6665, 6670),
        6679,
        6697,
        10080,
        11211,
    }
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LOCAL_NAME = re.compile(r"(.+\.)?localhost\.?", re.ASCII | re.IGNORECASE)  # loopback by RFC 6761
_ODD_NUMBER = re.compile(r"(0x[0-9a-f]*|\d+)(\.(0x[0-9a-f]*|\d+))*\.?", re.ASCII | re.IGNORECASE)


class ForbiddenAddress(SafelightError):
    """A URL leads, or may lead, into a network that is not the internet; or its host cannot be found."""


class UnknownHost(ForbiddenAddress):
    """No address was found for the host, which may be the name server's fault and pass."""


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the internet at large. IPv4 inside IPv6 is looked at as IPv4."""
    try:
        ip: _Address = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        elif ip in _NAT64:
            ip = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        else:
            return ip in _GLOBAL_V6 and ip.is_global and not any(ip in network for network in _REFUSED_V6)
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _REFUSED_V4)


def check_url(url: str, allow_private: bool) -> None:
    """What the text of a URL tells, before any name is looked up. Raises `ForbiddenAddress`."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ForbiddenAddress(f"is not a URL: {error}") from None
    host = parsed.raw_host.decode("ascii")
    if parsed.scheme not in ("http", "https") or not host or parsed.userinfo or (parsed.port or 1) > 65_535:
        raise ForbiddenAddress("only http and https URLs with a host and without a password are fetched")
    if not allow_private:
        _check_literal(host)


def _check_literal(host: str) -> None:
    if _is_address(host):
        if not is_public(host):
            raise ForbiddenAddress(f"{host} is not on the public internet")
    elif _ODD_NUMBER.fullmatch(host):
        raise ForbiddenAddress(f"{host} is an unusual spelling of an IP address")
    elif _LOCAL_NAME.fullmatch(host):
        raise ForbiddenAddress(f"{host} is not on the public internet")


def checked_addresses(host: str, port: int, allow_private: bool, timeout_s: float = _DNS_TIMEOUT_S) -> list[str]:
    """The addresses of `host`, every one of them public. Raises `ForbiddenAddress`."""
    if not allow_private:
        _check_literal(host)
    addresses = _resolve(host, port, timeout_s)
    if not allow_private and not all(is_public(address) for address in addresses):
        # Without the address: names of the inner network are not to be looked up through us.
        raise ForbiddenAddress(f"{host} is not on the public internet")
    return addresses


def is_web_port(port: int) -> bool:
    """Whether a stranger may name it: nothing but HTTP is to hear from us, whatever a request would mean to it."""
    return port in _WEB_PORTS or (port >= 1024 and port not in _OTHER_PORTS)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _resolve(host: str, port: int, timeout_s: float) -> list[str]:
    answers: queue.SimpleQueue[list[str] | None] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answers.put(list(dict.fromkeys(str(entry[4][0]) for entry in found)))
        except (OSError, UnicodeError):
            answers.put(None)

    # getaddrinfo knows no timeout of its own.
    threading.Thread(target=ask, name="resolve", daemon=True).start()
    try:
        addresses = answers.get(timeout=timeout_s)
    except queue.Empty:
        raise UnknownHost(f"the name server gave no answer for {host} in {timeout_s:.0f} s") from None
    if not addresses:
        raise UnknownHost(f"the host {host} is not known")
    return addresses


class GuardedTransport(httpx.BaseTransport):
    """Sends a request to a checked address of its host, with the host's name in the Host header and in TLS.

    Keeps no connection, follows no redirect, holds no cookie. Safe to share between threads.
    """

    def __init__(self, *, allow_private: bool = False, verify: ssl.SSLContext | bool = True) -> None:
        self._allow_private = allow_private
        limits = httpx.Limits(max_connections=32, max_keepalive_connections=0)
        self._inner = httpx.HTTPTransport(verify=verify, limits=limits, trust_env=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Raises `ForbiddenAddress`, or what httpx raises."""
        url = request.url
        host = url.raw_host.decode("ascii")
        port = url.port or (443 if url.scheme == "https" else 80)
        if url.scheme not in ("http", "https") or not host or url.userinfo:
            raise ForbiddenAddress("only http and https URLs with a host and without a password are fetched")
        if not self._allow_private and not is_web_port(port):
            raise ForbiddenAddress(f"port {port} is none of the web")
        deadline = request.extensions.get("deadline") or Deadline(_DEFAULT_TIMEOUT_S)
        failure: httpx.TransportError = httpx.ConnectTimeout("no time left")
        patience_s = min(_DNS_TIMEOUT_S, deadline.remaining_s)
        for address in checked_addresses(host, port, self._allow_private, patience_s)[:_MAX_ADDRESSES]:
            if deadline.remaining_s <= 0:
                break
            pinned = httpx.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "timeout": deadline.waits(), "sni_hostname": host},
            )
            try:
                return self._inner.handle_request(pinned)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        raise failure

    def close(self) -> None:
        self._inner.close()


class Deadline:
    """Cuts the connections of one exchange when its time is up, whatever they do; httpx bounds single reads only."""

    def __init__(self, timeout_s: float) -> None:
        self.expired = False
        self._ends = time.monotonic() + timeout_s
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(timeout_s, self._expire)
        self._timer.daemon = True

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._ends - time.monotonic())

    @property
    def extensions(self) -> dict[str, Any]:
        """For `httpx.Request`, which passes them on to `GuardedTransport`."""
        return {"deadline": self, "trace": self._trace}

    def waits(self) -> dict[str, float]:
        """httpx's timeouts: connecting leaves some time for another address, reading may take the rest."""
        rest_s = self.remaining_s
        return {"connect": min(_CONNECT_TIMEOUT_S, rest_s), "read": rest_s, "write": rest_s, "pool": rest_s}

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            # A duplicate, as TLS takes the original over.
            connection = info["return_value"].get_extra_info("socket").dup()
            with self._lock:
                self._sockets.append(connection)
                expired = self.expired
            if expired:
                _shut(connection)

    def _expire(self) -> None:
        with self._lock:
            self.expired = True
            for connection in self._sockets:
                _shut(connection)

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            for connection in self._sockets:
                connection.close()
            self._sockets.clear()


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

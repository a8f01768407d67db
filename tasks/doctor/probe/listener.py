"""Who sits at a host and port, when a client got no answer that it understood."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Literal

Listener = Literal["unresolved", "nobody", "no route", "silent", "tls", "http", "plain"]


def who_listens(host: str, port: int, limit_s: float) -> Listener:
    """`no route`: nothing came back at all; `silent`: it accepts a connection and says nothing, to HTTP and to TLS."""
    try:
        said = _say(host, port, limit_s, b"GET / HTTP/1.0\r\n\r\n")
    except socket.gaierror:
        return "unresolved"
    except TimeoutError:
        return "no route"
    except ConnectionRefusedError:
        return "nobody"
    except OSError:
        return "no route"
    # Go's servers tell a plain request on a TLS port in plain HTTP.
    if said.startswith(b"HTTP/") and b"HTTPS server" not in said:
        return "http"
    if said and not said.startswith((b"\x15\x03", b"HTTP/")):
        return "plain"
    return "tls" if _speaks_tls(host, port, limit_s) else "silent"


def _say(host: str, port: int, limit_s: float, words: bytes) -> bytes:
    """The first bytes of the answer; nothing if there is none in time."""
    with socket.create_connection((host, port), timeout=limit_s) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(words)
            return connection.recv(256)
        return b""


def _speaks_tls(host: str, port: int, limit_s: float) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=limit_s) as connection:
            with context.wrap_socket(connection, server_hostname=host):
                return True
    except OSError:
        return False

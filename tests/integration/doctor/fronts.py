"""What may stand before a real store: a proxy that refuses, or that changes the Host."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: (method, path, headers) -> the S3 code to refuse with, or nothing.
Refuses = Callable[[str, str, Mapping[str, str]], str | None]


@contextmanager
def front_of(port: int, refuses: Refuses, *, host: str | None = None) -> Iterator[str]:
    """The URL of a front that passes on what it does not refuse, with another `host` if one is given."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if code := refuses(self.command, self.path, self.headers):
                self.reply(501, {}, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())
                return
            headers = {**dict(self.headers), **({"Host": host} if host else {})}
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            kept = {k: v for k, v in answer.getheaders() if k.lower() not in ("transfer-encoding", "connection")}
            self.reply(answer.status, kept, answer.read())
            connection.close()

        def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response_only(status)
            if not any(name.lower() == "content-length" for name in headers):
                headers["Content-Length"] = str(len(body))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()

"""A plain S3 server: path style, single and multipart objects, and none of what came to S3 in the last ten years.

It refuses trailers, chunked signatures and checksum headers, and lists of keys to delete; it notes each request.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

_MODERN = ("x-amz-trailer", "x-amz-sdk-checksum-algorithm", "transfer-encoding")


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    headers: dict[str, str]


class PlainS3:
    def __init__(self) -> None:
        self.reset()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                server.seen.append(Seen(self.command, self.path, headers))
                status, extra, answer = server.answer(self.command, self.path, headers, body)
                self.send_response(status)
                extra.setdefault("Content-Length", str(len(answer)))
                for name, value in extra.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def reset(self) -> None:
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        #: Metadata and parts of uploads that are neither complete nor aborted.
        self.uploads: dict[str, tuple[dict[str, str], dict[int, bytes]]] = {}
        self.seen: list[Seen] = []
        #: `(status, code)` for every PUT, if set.
        self.refusal: tuple[int, str] | None = None

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(path)
        key, query = unquote(parts.path).lstrip("/"), parse_qs(parts.query, keep_blank_values=True)
        if any(name in headers for name in _MODERN) or "aws-chunked" in headers.get("content-encoding", ""):
            return _error(501, "NotImplemented")
        if any(name.startswith("x-amz-checksum") for name in headers) or "delete" in query:
            return _error(400, "MissingContentMD5")
        if method == "PUT" and self.refusal is not None:
            return _error(*self.refusal)
        if "uploads" in query:
            self.uploads[key] = _metadata(headers), {}
            return 200, {}, b"<R><UploadId>u</UploadId></R>"
        if "partNumber" in query:
            self.uploads[key][1][int(query["partNumber"][0])] = body
            return 200, {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}, b""
        if "uploadId" in query and method == "POST":
            kept, pieces = self.uploads.pop(key)
            self.objects[key] = b"".join(pieces[n] for n in sorted(pieces)), {**kept, "ETag": '"x-2"'}
            return 200, {}, b"<R><ETag>x-2</ETag></R>"
        return self._plain(method, key, headers, body)

    def _plain(self, method: str, key: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if method == "PUT":
            self.objects[key] = body, {**_metadata(headers), "ETag": f'"{hashlib.md5(body).hexdigest()}"'}
            return 200, {"ETag": self.objects[key][1]["ETag"]}, b""
        if method == "DELETE" and key in self.uploads:
            del self.uploads[key]
            return 204, {}, b""
        if method == "DELETE":
            self.objects.pop(key, None)
            return 204, {}, b""
        if key not in self.objects:
            return _error(404, "NoSuchKey")
        found, about = self.objects[key]
        return 200, {**about, "Content-Length": str(len(found))}, found


def _metadata(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("x-amz-meta-")}


def _error(status: int, code: str) -> tuple[int, dict[str, str], bytes]:
    return status, {}, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()


@contextmanager
def plain_s3() -> Iterator[PlainS3]:
    server = PlainS3()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()

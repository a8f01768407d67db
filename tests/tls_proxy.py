"""TLS in front of a server that has none: a client's certificate is asked for, and its bytes go on in the clear."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Papers:
    """One authority, its server and its client, as files; and an authority that nobody here trusts."""

    ca: Path
    server: Path
    client: Path
    other_ca: Path
    other_client: Path

    @property
    def parameters(self) -> str:
        """Of a URL: whom we trust and who we are."""
        return f"ssl_ca_certs={self.ca}&ssl_certfile={self.client}&ssl_keyfile={self.client}"


def make_papers(folder: Path) -> Papers:
    ours, others = trustme.CA(), trustme.CA()
    papers = Papers(*(folder / f"{name}.pem" for name in ("ca", "server", "client", "other-ca", "other-client")))
    for authority, file in ((ours, papers.ca), (others, papers.other_ca)):
        authority.cert_pem.write_to_path(file)
    for authority, name, file in (
        (ours, "127.0.0.1", papers.server),
        (ours, "worker@example.org", papers.client),
        (others, "worker@example.org", papers.other_client),
    ):
        authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(file)
    return papers


@contextlib.contextmanager
def tls_proxy(papers: Papers, target_port: int) -> Iterator[int]:
    """The port at which it listens."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(papers.ca))
    context.load_cert_chain(papers.server)
    context.verify_mode = ssl.CERT_REQUIRED

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError), context.wrap_socket(self.request, server_side=True) as secure:
                with socket.create_connection(("127.0.0.1", target_port)) as clear:
                    _pour(secure, clear)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def _pour(secure: ssl.SSLSocket, clear: socket.socket) -> None:
    """Both ways, until either side ends."""
    other = {secure: clear, clear: secure}
    while True:
        ready = [secure] if secure.pending() else select.select([secure, clear], [], [])[0]
        for side in ready:
            data = side.recv(65_536)
            if not data:
                return
            other[side].sendall(data)

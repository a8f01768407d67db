"""The API in a thread, for tests that speak HTTP to it: a real server, a free port, no process."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from api_stub.app import create_app
from api_stub.patience import PatientProtocol
from api_stub.serve import Server
from tasks.settings import Settings
from tasks.tracing import NO_TRACING, Tracing

START_S = 60.0


@contextmanager
def running_api(settings: Settings, tracing: Tracing = NO_TRACING) -> Iterator[str]:
    """Its base URL, without a slash at the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    app = create_app(settings, tracing)
    config = uvicorn.Config(
        app, http=PatientProtocol, log_level="error", timeout_graceful_shutdown=5, server_header=False
    )
    server = Server(config, app.state.closing)
    thread = threading.Thread(target=server.run, args=([listener],), name="api")
    thread.start()
    try:
        deadline = time.monotonic() + START_S
        while not server.started:
            assert thread.is_alive() and time.monotonic() < deadline, "the API did not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.handle_exit(signal.SIGTERM, None)
        thread.join()
        listener.close()

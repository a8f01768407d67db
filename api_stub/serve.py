"""Runs the app under uvicorn, as a command: a port of its own or a free one, one line when something is missing."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import sys
import threading
from types import FrameType

import uvicorn

from api_stub.app import create_app
from api_stub.patience import PatientProtocol
from tasks.connection import connect
from tasks.errors import ConfigError, StoreUnavailable
from tasks.logs import configure_logs
from tasks.models import load_models
from tasks.quotas import load_quotas
from tasks.redis_rights import producer_samples
from tasks.redis_start import check_start
from tasks.settings import Settings
from tasks.tracing import tracing_from_environment

log = logging.getLogger(__name__)

EXIT_USAGE = 2
EXIT_UNREACHABLE = 4
#: What is still running this long after the signal is cancelled.
GRACE_S = 5


def serve(settings: Settings, host: str = "127.0.0.1", port: int = 8000) -> int:
    """Serve until SIGTERM or Ctrl-C; the exit code. Port 0 takes a free one; the URL is printed once it listens."""
    try:
        configure_logs(settings)
        tracing = tracing_from_environment("safelight-api")
        app = create_app(settings, tracing)
        _probe(settings)
        listener = _listen(host, port)
    except ConfigError as error:
        return _give_up(str(error), EXIT_USAGE)
    except StoreUnavailable as error:
        return _give_up(str(error), EXIT_UNREACHABLE)
    except OSError as error:
        reason = error.strerror or str(error)
        return _give_up(f"cannot listen on {host}:{port}: {reason}; try another port, or 0 for a free one", EXIT_USAGE)
    print(f"Safelight API and page: {_url(listener)}", flush=True)
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        log_config=None,
        log_level=settings.log_level,
        access_log=settings.log_level == "debug",
        timeout_graceful_shutdown=GRACE_S,
        server_header=False,
    )
    # After its own clean end uvicorn raises the signal again; as an interrupt it is caught here.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with listener, contextlib.suppress(KeyboardInterrupt):
        Server(config, app.state.closing).run(sockets=[listener])
    tracing.close()
    return 0


class Server(uvicorn.Server):
    """Told to end, it has open streams and long polls end too, instead of waiting for them."""

    def __init__(self, config: uvicorn.Config, closing: threading.Event) -> None:
        super().__init__(config)
        self._closing = closing

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._closing.set()
        super().handle_exit(sig, frame)


def _probe(settings: Settings) -> None:
    """Raises `StoreUnavailable` or `ConfigError` now, rather than at the first request."""
    models = load_models(settings.models)
    load_quotas(settings.tenants)
    with connect(settings) as client:
        for warning in check_start(client, producer_samples(settings.key_prefix, models.names)):
            log.warning("%s", warning)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # nosec B104 # it is shown, not bound
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _give_up(reason: str, code: int) -> int:
    print(f"safelight api: {reason}", file=sys.stderr)
    return code

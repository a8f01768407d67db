"""The backends of `examples/`, each on a real server, with real Redis, object store and sender of webhooks behind."""

from __future__ import annotations

import base64
import importlib
import socketserver
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import httpx
import pytest
import redis
import uvicorn
from pydantic import SecretStr

from tasks.settings import Settings
from tasks.webhook_queue import WebhookQueue
from tasks.webhooks import WebhookSender
from tests.e2e.nodes import environment, eventually
from tests.integration.store_worker import StoreWorker, store_worker

EXAMPLES = Path(__file__).parents[2] / "examples"
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


class Threads(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def wsgi(application: Any) -> Iterator[int]:
    with Threads(("127.0.0.1", 0), Quiet) as server:
        server.set_app(application)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def asgi(application: Any) -> Iterator[int]:
    server = uvicorn.Server(uvicorn.Config(application, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        eventually(lambda: server.started, 30, "the backend listens")
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def served(name: str) -> AbstractContextManager[int]:
    module = importlib.import_module(f"examples.{name}_backend")
    if name == "fastapi":
        return asgi(module.app)
    return wsgi(module.application if name == "django" else module.create_app())


@pytest.fixture
def worker(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreWorker]:
    """A worker double, and the real thing that tells webhooks."""
    changed = settings.model_copy(update={"allow_private_urls": True, "webhook_secret": SecretStr(SECRET)})
    for name, value in environment(changed).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SAFELIGHT_WEBHOOK_SECRET", SECRET)
    with store_worker(changed) as running, redis.Redis.from_url(changed.redis_url) as connection:
        queue = WebhookQueue(connection, changed.key_prefix)
        sender = WebhookSender(queue, running.client.get, changed, num_threads=1, poll_s=0.02)
        sender.start()
        yield running
        sender.stop()


@pytest.mark.parametrize("name", ["fastapi", "flask", "django"])
def test_a_backend(name: str, worker: StoreWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(name) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as backend:
        monkeypatch.setenv("BACKEND_URL", str(backend.base_url).rstrip("/"))
        wish, key = {"prompt": "a red boat", "seed": 7}, {"Idempotency-Key": "order-17"}
        sent = backend.post("/pictures", json=wish, headers=key)
        assert sent.status_code == 202
        assert backend.post("/pictures", json=wish, headers=key).json()["id"] == sent.json()["id"]
        picture = f"/pictures/{sent.json()['id']}"
        eventually(lambda: backend.get(picture).json()["told"] == "job.succeeded", 20, "told of the success")
        (url,) = backend.get(picture).json()["urls"]
        assert httpx.get(url).headers["content-type"] == "image/png"

        slow = f"/pictures/{backend.post('/pictures', json={'prompt': 'a slow boat'}).json()['id']}"
        assert backend.post(f"{slow}/abort").status_code == 202
        eventually(lambda: backend.get(slow).json()["told"] == "job.aborted", 20, "told of the abort")

        assert backend.post("/pictures", json={"prompt": ""}).status_code == 422
        assert backend.get("/pictures/unknown").status_code == 404
        forged = {"webhook-id": "msg_1", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}
        assert backend.post("/hooks/safelight", json={}, headers=forged).status_code == 401
        assert backend.post("/hooks/safelight", json={}).status_code == 401


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) < 120


def test_keda_may_count_in_redis(worker: StoreWorker) -> None:
    """The sorted sets that deploy/kubernetes/components/keda-redis names hold what waits and what runs."""
    text = (EXAMPLES.parent / "deploy/kubernetes/components/keda-redis/scaledobject.yaml").read_text("utf-8")
    job = worker.client.submit(prompt="a slow boat")
    with redis.Redis.from_url(worker.settings.redis_url) as connection:
        names = [f"{worker.settings.key_prefix}{part}:tiny" for part in ("queue", "running")]
        assert all(f'listName: "{name}"' in text for name in names)
        eventually(lambda: [connection.zcard(name) for name in names] == [0, 1], 20, "it runs")
        worker.client.abort(job.id)
        eventually(lambda: [connection.zcard(name) for name in names] == [0, 0], 20, "it has ended")

"""Deliveries over a real Redis to a receiver of the test's own."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from tasks.connection import connect
from tasks.errors import UnknownJob
from tasks.job import Job, JobStatus
from tasks.request import GenerationRequest
from tasks.settings import Settings
from tasks.webhook_queue import WebhookQueue
from tasks.webhooks import WebhookSender

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Receiver:
    def __init__(self) -> None:
        self.status: Callable[[int], int] = lambda _: 204
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.delay_s = 0.0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                time.sleep(receiver.delay_s)
                self.send_response(receiver.status(len(receiver.got)))
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    opened = Receiver()
    yield opened
    opened.server.shutdown()
    opened.server.server_close()


@pytest.fixture
def plain(redis_url: str) -> Settings:
    """No object store is needed here."""
    return Settings(redis_url=redis_url, allow_private_urls=True, webhook_secret=SecretStr(SECRET))


class Jobs:
    """Records by id, as the store would give them."""

    def __init__(self, url: str | None) -> None:
        self.url = url
        self.known: dict[str, Job] = {}

    def add(self, job_id: str, status: JobStatus = JobStatus.SUCCEEDED, **fields: Any) -> str:
        request = GenerationRequest(prompt="Grüße 😀", webhook_url=self.url, **fields)
        now = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
        self.known[job_id] = Job(id=job_id, status=status, request=request, created_at=now, finished_at=now)
        return job_id

    def get(self, job_id: str) -> Job:
        if job_id not in self.known:
            raise UnknownJob(job_id)
        return self.known[job_id]


@pytest.fixture
def client(plain: Settings) -> redis.Redis:
    return connect(plain)


@pytest.fixture
def queue(client: redis.Redis) -> WebhookQueue:
    return WebhookQueue(client, backoff_s=(0.05, 0.05))


@pytest.fixture
def jobs(receiver: Receiver) -> Jobs:
    return Jobs(receiver.url)


@pytest.fixture
def sender(queue: WebhookQueue, jobs: Jobs, plain: Settings) -> WebhookSender:
    return WebhookSender(queue, jobs.get, plain, poll_s=0.02)


def eventually(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def is_idle(client: redis.Redis) -> bool:
    return not client.exists("safelight:webhooks") and not client.exists("safelight:webhook_tries")

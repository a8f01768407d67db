"""Deliveries over a real Redis to a receiver of the test's own: signed, repeated, given up, never lost."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import redis
from pydantic import SecretStr
from standardwebhooks import Webhook, WebhookVerificationError

from tasks import Client
from tasks import webhooks as module
from tasks.connection import connect
from tasks.errors import ConfigError, StoreUnavailable, UnknownJob
from tasks.job import Job, JobStatus
from tasks.local.process import free_port
from tasks.redis_store import RedisJobStore
from tasks.request import GenerationRequest
from tasks.settings import Settings
from tasks.webhook_queue import BACKOFF_S, Refusal, WebhookQueue
from tasks.webhooks import WebhookSender, payload, signing_keys

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


def test_a_delivery_is_signed_as_the_standard_says(
    sender: WebhookSender, queue: WebhookQueue, jobs: Jobs, receiver: Receiver, client: redis.Redis
) -> None:
    queue.enqueue(jobs.add("J1"))
    assert sender.tick()
    assert not sender.tick()
    headers, body = receiver.got[0]
    assert headers["webhook-id"] == "msg_J1"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 10
    signed = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    wanted = base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{wanted}"
    message = Webhook(SECRET).verify(body.decode(), headers)  # the standard's own library
    assert message == json.loads(body)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body.decode().replace("J1", "J2"), headers)
    assert message["type"] == "job.succeeded"
    assert message["timestamp"] == "2026-01-31T12:00:00.000Z"
    assert message["data"] == jobs.get("J1").to_json()
    assert is_idle(client)


def test_a_member_added_by_the_store_is_delivered(
    sender: WebhookSender, jobs: Jobs, receiver: Receiver, client: redis.Redis
) -> None:
    """The convention with `store.lua`: member job id, score now in ms."""
    client.zadd("safelight:webhooks", {jobs.add("J1", JobStatus.ABORTED): int(time.time() * 1000)})
    assert sender.tick()
    assert json.loads(receiver.got[0][1])["type"] == "job.aborted"


@pytest.mark.parametrize(
    ("secret", "keys"),
    [("", []), ("plain", [b"plain"]), (SECRET, [KEY]), (f"{SECRET} old", [KEY, b"old"])],
)
def test_secrets(secret: str, keys: list[bytes]) -> None:
    assert signing_keys(secret) == keys


@pytest.mark.parametrize("secret", ["whsec_***", "whsec_", "whsec_abc"])
def test_a_secret_that_is_none_stops_the_start(secret: str) -> None:
    with pytest.raises(ConfigError, match="SAFELIGHT_WEBHOOK_SECRET"):
        signing_keys(secret)


def test_signatures_of_an_old_and_a_new_secret_are_both_sent(
    queue: WebhookQueue, jobs: Jobs, receiver: Receiver, plain: Settings
) -> None:
    changed = plain.model_copy(update={"webhook_secret": SecretStr("new old")})
    queue.enqueue(jobs.add("J1"))
    WebhookSender(queue, jobs.get, changed).tick()
    assert [part[:3] for part in receiver.got[0][0]["webhook-signature"].split()] == ["v1,", "v1,"]


def test_what_was_given_up_can_be_told_again_as_the_same_message(
    sender: WebhookSender, queue: WebhookQueue, jobs: Jobs, receiver: Receiver, client: redis.Redis
) -> None:
    receiver.status = lambda _: 503
    queue.enqueue(jobs.add("J1"))
    sender.start()
    eventually(lambda: queue.dead() == ["J1"])
    [letter] = queue.letters()
    assert (letter.status, letter.error, letter.tries) == (503, "status 503", 3)
    assert letter.receiver == receiver.url.removesuffix("/hook")
    receiver.status = lambda _: 204
    receiver.got.clear()
    assert queue.revive(["J1", "nobody"]) == ["J1"]
    assert queue.revive(["J1"]) == []
    eventually(lambda: is_idle(client) and len(receiver.got) == 1)
    sender.stop()
    headers, body = receiver.got[0]
    assert headers["webhook-id"] == "msg_J1"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 10
    assert Webhook(SECRET).verify(body.decode(), headers)
    assert queue.letters() == [] and not client.exists("safelight:webhook_letters")


def test_letters_are_bounded_and_can_be_forgotten(client: redis.Redis) -> None:
    queue = WebhookQueue(client, keep_s=60)
    client.zadd("safelight:webhooks_dead", {f"x{number}": 1 for number in range(3)})
    client.hset("safelight:webhook_letters", mapping={f"x{number}": "{}" for number in range(3)})
    for job_id in ("J1", "J2"):
        queue.enqueue(job_id)
        queue.bury(queue.due(1)[0], Refusal(status=410, error="status 410"))
    assert [letter.id for letter in queue.letters()] == ["J2", "J1"], "those of long ago are gone"
    assert client.hlen("safelight:webhook_letters") == 2
    client.zadd("safelight:webhooks_dead", {f"y{number}": int(time.time() * 1000) - 5_000 for number in range(10_000)})
    queue.enqueue("J3")
    queue.bury(queue.due(1)[0])
    assert client.zcard("safelight:webhooks_dead") == 10_000
    assert queue.drop(["J3", "J2", "nobody"]) == 2
    assert queue.drop([]) == 0
    assert {letter.id for letter in queue.letters(2)} == {"J1", "y9999"}


def test_the_letter_goes_with_the_jobs_record(client: redis.Redis, plain: Settings) -> None:
    queue = WebhookQueue(client)
    store = RedisJobStore(client)
    with Client(plain) as producer:
        job = producer.submit(prompt="x", webhook_url="https://example.org/hook")
    store.abort(job.id)
    queue.bury(queue.due(1)[0])
    assert queue.dead() == [job.id]
    client.zadd("safelight:expiry", {job.id: 1})
    client.delete(f"safelight:job:{job.id}")
    store.reap(3)
    assert queue.dead() == [] and not client.exists("safelight:webhook_letters")


def test_pictures_are_not_sent_back(jobs: Jobs) -> None:
    jobs.add("J1", image="data:image/png;base64," + "A" * 10_000)
    body = payload(jobs.get("J1"))
    assert len(body) < 3000
    assert json.loads(body)["data"]["request"]["image"] == "data:image/png;base64,..."


def test_a_failed_delivery_is_repeated_with_the_same_id(
    sender: WebhookSender, queue: WebhookQueue, jobs: Jobs, receiver: Receiver, client: redis.Redis
) -> None:
    receiver.status = lambda count: 500 if count == 1 else 200
    queue.enqueue(jobs.add("J1"))
    sender.start()
    eventually(lambda: len(receiver.got) == 2 and is_idle(client))
    sender.stop()
    assert {headers["webhook-id"] for headers, _ in receiver.got} == {"msg_J1"}
    assert queue.dead() == []


@pytest.mark.parametrize(("status", "deliveries"), [(404, 3), (302, 3), (410, 1)])
def test_a_lasting_refusal_becomes_a_dead_letter_and_the_sender_lives(
    sender: WebhookSender,
    queue: WebhookQueue,
    jobs: Jobs,
    receiver: Receiver,
    client: redis.Redis,
    status: int,
    deliveries: int,
) -> None:
    receiver.status = lambda _: status
    for number in range(5):
        queue.enqueue(jobs.add(f"J{number}"))
    sender.start()
    eventually(lambda: len(queue.dead()) == 5)
    assert len(receiver.got) == 5 * deliveries, "also: a redirect is not followed"
    receiver.status = lambda _: 200
    queue.enqueue("J3")  # an operator brings it back
    queue.enqueue(jobs.add("J9"))
    eventually(lambda: is_idle(client))
    sender.stop()
    assert "J3" not in queue.dead() and len(queue.dead()) == 4
    assert len(receiver.got) == 5 * deliveries + 2


def test_nobody_listens_and_nobody_is_hurt(queue: WebhookQueue, plain: Settings) -> None:
    jobs = Jobs(f"http://127.0.0.1:{free_port()}/hook")
    sender = WebhookSender(queue, jobs.get, plain, poll_s=0.02)
    queue.enqueue(jobs.add("J1"))
    sender.start()
    eventually(lambda: queue.dead() == ["J1"])
    sender.stop()


def test_private_addresses_are_refused_unless_allowed(
    queue: WebhookQueue, jobs: Jobs, receiver: Receiver, plain: Settings
) -> None:
    sender = WebhookSender(queue, jobs.get, plain.model_copy(update={"allow_private_urls": False}), poll_s=0.02)
    queue.enqueue(jobs.add("J1"))
    assert sender.tick()
    [letter] = queue.letters()
    assert (letter.id, letter.status, letter.tries, receiver.got) == ("J1", None, 1, []), "at once: it stays forbidden"
    assert letter.receiver == receiver.url.removesuffix("/hook")
    assert letter.error.startswith("ForbiddenAddress: 127.0.0.1 is not on the public internet")


def test_a_host_that_no_name_server_knows_is_asked_for_again(queue: WebhookQueue, plain: Settings) -> None:
    jobs = Jobs("http://nobody.invalid/hook?token=very-secret")
    queue.enqueue(jobs.add("J1"))
    WebhookSender(queue, jobs.get, plain.model_copy(update={"allow_private_urls": False})).tick()
    assert queue.letters() == []
    assert queue.due(1) or queue.dead() == []


def test_a_slow_receiver_is_cut_and_asked_again(
    sender: WebhookSender, queue: WebhookQueue, jobs: Jobs, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DELIVERY_TIMEOUT_S", 0.5)
    receiver.delay_s = 6.0
    queue.enqueue(jobs.add("J1"))
    started = time.monotonic()
    sender.tick()
    assert time.monotonic() - started < 4
    eventually(lambda: [each.job_id for each in queue.due(1)] == ["J1"])


def test_an_endless_answer_is_not_read(
    sender: WebhookSender, queue: WebhookQueue, jobs: Jobs, client: redis.Redis
) -> None:
    """The status is all that counts; the connection is closed after it."""
    listener = socket.create_server(("127.0.0.1", 0))
    sent: list[int] = []

    def pour() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            sent.extend(connection.send(bytes(65_536)) for _number in range(4_000))

    thread = threading.Thread(target=pour)
    thread.start()
    jobs.url = f"http://127.0.0.1:{listener.getsockname()[1]}/hook"
    queue.enqueue(jobs.add("J1"))
    assert sender.tick()
    thread.join(30)
    listener.close()
    assert is_idle(client) and queue.dead() == []
    assert sum(sent) < 32 * 1024 * 1024, "it was read to the end"


def test_what_needs_no_delivery_leaves_the_queue(
    sender: WebhookSender, queue: WebhookQueue, jobs: Jobs, receiver: Receiver, client: redis.Redis
) -> None:
    jobs.url = None
    queue.enqueue(jobs.add("no-url"))
    jobs.url = receiver.url
    queue.enqueue(jobs.add("running", JobStatus.RUNNING))
    queue.enqueue("expired")
    while sender.tick():
        pass
    assert is_idle(client) and receiver.got == []
    assert queue.dead() == ["expired"]


class TestQueue:
    def test_a_lease_hides_and_its_end_brings_back(self, queue: WebhookQueue) -> None:
        queue.enqueue("J1")
        assert [each.job_id for each in queue.due(5, lease_s=0.15)] == ["J1"]
        assert queue.due(5) == []
        time.sleep(0.2)
        assert [each.job_id for each in queue.due(5)] == ["J1"], "a lost sender's delivery is taken over"

    def test_who_lost_the_lease_changes_nothing(self, queue: WebhookQueue) -> None:
        queue.enqueue("J1")
        (old,) = queue.due(1, lease_s=0.05)
        time.sleep(0.1)
        (new,) = queue.due(1, lease_s=0.3)
        queue.done(old)
        queue.bury(old)
        queue.retry(old)
        assert queue.dead() == [] and queue.due(1) == []
        queue.done(new)
        queue.retry(old)
        time.sleep(0.35)
        assert queue.due(1) == []

    def test_many_senders_never_share_a_delivery(self, queue: WebhookQueue) -> None:
        for number in range(60):
            queue.enqueue(f"J{number}")
        taken: list[str] = []

        def take() -> None:
            while found := queue.due(3):
                taken.extend(each.job_id for each in found)

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(taken) == sorted(f"J{number}" for number in range(60))

    def test_the_pauses_grow_as_the_standard_says(self, client: redis.Redis) -> None:
        queue = WebhookQueue(client)
        queue.enqueue("J1")
        for pause in BACKOFF_S:
            (delivery,) = queue.due(1)
            before = time.time()
            assert queue.retry(delivery)
            due = client.zscore("safelight:webhooks", "J1")
            assert due is not None and abs(due / 1000 - before - pause) < 2
            client.zadd("safelight:webhooks", {"J1": 0})
        (delivery,) = queue.due(1)
        assert not queue.retry(delivery)
        assert queue.dead() == ["J1"] and is_idle(client)

    def test_an_outage_has_its_own_error_and_the_sender_outlives_it(self, jobs: Jobs, plain: Settings) -> None:
        away = connect(plain.model_copy(update={"redis_url": f"redis://127.0.0.1:{free_port()}/0"}))
        queue = WebhookQueue(away)
        with pytest.raises(StoreUnavailable):
            queue.due(1)
        sender = WebhookSender(queue, jobs.get, plain, num_threads=1, poll_s=0.02)
        sender.start()
        time.sleep(0.3)
        assert all(thread.is_alive() for thread in sender._threads)
        sender.stop()
        assert not any(thread.is_alive() for thread in sender._threads)

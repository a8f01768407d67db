"""Receivers that fail, redirect, hang, pour or may not be called: told again, or given up, and nobody else is hurt."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest
import redis

from tasks import webhooks as module
from tasks.local.process import free_port
from tasks.settings import Settings
from tasks.webhook_queue import WebhookQueue
from tasks.webhooks import WebhookSender
from tests.integration.webhooks.conftest import Jobs, Receiver, eventually, is_idle


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


@pytest.mark.parametrize(("status", "level"), [(401, "WARNING"), (403, "WARNING"), (500, "INFO")])
def test_a_refusal_for_its_secret_is_a_warning(
    sender: WebhookSender,
    queue: WebhookQueue,
    jobs: Jobs,
    receiver: Receiver,
    client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
    status: int,
    level: str,
) -> None:
    caplog.set_level("INFO", "tasks.webhooks")
    receiver.status = lambda count: status if count == 1 else 200
    queue.enqueue(jobs.add("J1"))
    sender.start()
    eventually(lambda: len(receiver.got) == 2 and is_idle(client))
    sender.stop()
    (told,) = [record for record in caplog.records if "to be tried again" in record.getMessage()]
    assert told.levelname == level


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

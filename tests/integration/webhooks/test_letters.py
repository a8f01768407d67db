"""Deliveries that were given up: bounded, told again as the same message, gone with their job."""

from __future__ import annotations

import time

import redis
from standardwebhooks import Webhook

from tasks import Client
from tasks.job import JobStatus
from tasks.redis_store import RedisJobStore
from tasks.settings import Settings
from tasks.webhook_queue import Refusal, WebhookQueue
from tasks.webhooks import WebhookSender
from tests.integration.webhooks.conftest import SECRET, Jobs, Receiver, eventually, is_idle


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

"""The durable queue of deliveries: filled by the store, leased to one sender at a time, with growing pauses."""

from __future__ import annotations

import json
import threading
import time

import pytest
import redis

from tasks.connection import connect
from tasks.errors import StoreUnavailable
from tasks.job import JobStatus
from tasks.local.process import free_port
from tasks.settings import Settings
from tasks.webhook_queue import BACKOFF_S, WebhookQueue
from tasks.webhooks import WebhookSender
from tests.integration.webhooks.conftest import Jobs, Receiver, is_idle


def test_a_member_added_by_the_store_is_delivered(
    sender: WebhookSender, jobs: Jobs, receiver: Receiver, client: redis.Redis
) -> None:
    """The convention with `store.lua`: member job id, score now in ms."""
    client.zadd("safelight:webhooks", {jobs.add("J1", JobStatus.ABORTED): int(time.time() * 1000)})
    assert sender.tick()
    assert json.loads(receiver.got[0][1])["type"] == "job.aborted"


def test_a_lease_hides_and_its_end_brings_back(queue: WebhookQueue) -> None:
    queue.enqueue("J1")
    assert [each.job_id for each in queue.due(5, lease_s=0.6)] == ["J1"]
    assert queue.due(5) == []
    time.sleep(0.7)
    assert [each.job_id for each in queue.due(5)] == ["J1"], "a lost sender's delivery is taken over"


def test_who_lost_the_lease_changes_nothing(queue: WebhookQueue) -> None:
    queue.enqueue("J1")
    (old,) = queue.due(1, lease_s=0.05)
    time.sleep(0.1)
    (new,) = queue.due(1, lease_s=1.0)
    queue.done(old)
    queue.bury(old)
    queue.retry(old)
    assert queue.dead() == [] and queue.due(1) == []
    queue.done(new)
    queue.retry(old)
    time.sleep(1.1)
    assert queue.due(1) == []


def test_many_senders_never_share_a_delivery(queue: WebhookQueue) -> None:
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


def test_the_pauses_grow_as_the_standard_says(client: redis.Redis) -> None:
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


def test_an_outage_has_its_own_error_and_the_sender_outlives_it(jobs: Jobs, plain: Settings) -> None:
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

"""Who else is in the broker's database: keys, queues, consumers. Real Celery, real messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis
from celery import Celery
from celery.worker import WorkController

from tasks import Client
from tasks.local.servers import RedisServer
from tasks.settings import Settings
from tests.e2e.nodes import eventually
from tests.integration.doctor.conftest import Doctor


def test_keys_of_another_system(doctor: Doctor, own_redis: RedisServer, operator: redis.Redis) -> None:
    with Client(redis_url=own_redis.url) as client:
        client.submit({"prompt": "a boat"})
    assert doctor("broker", SAFELIGHT_REDIS_URL=own_redis.url).bad == {}
    operator.set("session:17", "x")
    report = doctor("broker")
    assert report.code == 0
    report.says(
        "broker.database", "warn", "not Safelight's: 1 of ", "session:17", "SAFELIGHT_REDIS_URL=redis://HOST:PORT/1"
    )


def test_another_safelight(doctor: Doctor, own_redis: RedisServer, operator: redis.Redis) -> None:
    with Client(Settings(redis_url=own_redis.url, key_prefix="staging:")) as client:
        client.submit({"prompt": "a boat"})
    report = doctor("broker", SAFELIGHT_REDIS_URL=own_redis.url)
    assert report.code == 1
    report.says("broker.database", "FAIL", "'staging:'", "takes the other's messages", "/1")


def test_another_celery_app(doctor: Doctor, own_redis: RedisServer, operator: redis.Redis) -> None:
    with Celery("shop", broker=own_redis.url) as app:
        app.send_task("shop.mail", queue="mails")
    report = doctor("broker", SAFELIGHT_REDIS_URL=own_redis.url)
    report.says("broker.database", "warn", "another Celery app", "mails", "/1")
    keys = set(operator.keys())
    assert "mails" in keys
    doctor("broker")
    assert set(operator.keys()) == keys  # nothing is left behind


@contextmanager
def stranger(url: str, queue: str, visibility_s: int) -> Iterator[None]:
    """A Celery worker of some other app, in this process."""
    with Celery("shop", broker=url, set_as_current=False) as app:
        app.conf.broker_transport_options = {"visibility_timeout": visibility_s}
        worker = WorkController(
            app=app, hostname="shop@here", pool_cls="solo", queues=[queue], without_gossip=True, without_mingle=True
        )
        thread = threading.Thread(target=worker.start, daemon=True)
        thread.start()
        try:
            yield
        finally:
            worker.should_stop = True
            worker.stop(in_sighandler=False)
            thread.join(10)


def test_a_stranger_takes_our_messages(doctor: Doctor, own_redis: RedisServer, operator: redis.Redis) -> None:
    with stranger(own_redis.url, "safelight.tiny", 60):
        eventually(lambda: bool(operator.exists("_kombu.binding.celery.pidbox")), 20, "the stranger is up")
        report = doctor("broker", SAFELIGHT_REDIS_URL=own_redis.url)
    assert report.code == 1
    report.says(
        "broker.visibility", "FAIL", "shop@here", "safelight.tiny", "visibility timeout of 60 s instead of 3600 s"
    )


def test_messages_that_nobody_puts_back(doctor: Doctor, own_redis: RedisServer, operator: redis.Redis) -> None:
    operator.zadd("unacked_index", {"tag": time.time() - 3 * 3600})
    report = doctor("broker", SAFELIGHT_REDIS_URL=own_redis.url)
    report.says("broker.unacked", "warn", "1 message taken", "the oldest for 3 h", "start a worker")

"""Aborts are heard of, whoever writes the key; and are found by asking where Redis does not tell."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
import redis

from tasks.abort_feed import AbortFeed
from tasks.connection import connect
from tasks.redis_store import RedisJobStore
from tasks.settings import Settings
from tests.unit.test_worker_attempt import an_attempt
from worker.aborts import AbortWatcher
from worker.attempt import Attempts, Stop


class Store(RedisJobStore):
    """Counts what it is asked."""

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(client)
        self.looks: list[list[str]] = []

    def aborts_wanted(self, job_ids: Sequence[str]) -> frozenset[str]:
        self.looks.append(list(job_ids))
        return super().aborts_wanted(job_ids)


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with connect(Settings(redis_url=redis_url)) as client:
        yield client


@pytest.fixture
def feed(redis_url: str, client: redis.Redis) -> Iterator[AbortFeed]:
    feed = AbortFeed(connect(Settings(redis_url=redis_url), protocol=2), "safelight:")
    feed.start()
    until(lambda: feed.is_on)
    yield feed
    feed.stop()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_key_that_anybody_sets_stops_its_own_attempt_with_one_look(client: redis.Redis, feed: AbortFeed) -> None:
    store, attempts = Store(client), Attempts()
    watcher = AbortWatcher(store, attempts, feed)
    wanted, other = an_attempt("wanted"), an_attempt("other")
    with attempts.holding(wanted), attempts.holding(other):
        watcher.tick()
        assert store.looks == [["other", "wanted"]], "once, as keys may be older than the feed"
        for _ in range(5):
            watcher.tick()
        client.set("safelight:abort:elsewhere", 1)
        client.set("safelight:abort:wanted", 1)

        def stops() -> bool:
            watcher.tick()
            return wanted.reason is Stop.ABORT

        until(stops)
        assert store.looks[1:] == [["wanted"]]
    assert other.reason is None


def test_a_key_that_was_set_before_its_attempt_was_there_is_not_missed(client: redis.Redis, feed: AbortFeed) -> None:
    store, attempts, attempt = Store(client), Attempts(), an_attempt("a")
    watcher = AbortWatcher(store, attempts, feed)
    watcher.tick()
    client.set("safelight:abort:a", 1)
    until(lambda: "a" in feed._heard)
    watcher.tick()
    with attempts.holding(attempt):
        watcher.tick()
    assert attempt.reason is Stop.ABORT


def test_a_wish_that_was_taken_back_stops_nobody(client: redis.Redis, feed: AbortFeed) -> None:
    store, attempts, attempt = Store(client), Attempts(), an_attempt("a")
    client.set("safelight:abort:a", 1)
    client.delete("safelight:abort:a")
    until(lambda: "a" in feed._heard)
    with attempts.holding(attempt):
        AbortWatcher(store, attempts, feed).tick()
    assert attempt.reason is None


def test_after_an_interruption_all_keys_are_looked_at(client: redis.Redis, feed: AbortFeed) -> None:
    store, attempts, attempt = Store(client), Attempts(), an_attempt("a")
    watcher = AbortWatcher(store, attempts, feed)
    with attempts.holding(attempt):
        watcher.tick()
        client.client_kill_filter(_type="pubsub")
        until(lambda: not feed.is_on)
        client.set("safelight:abort:a", 1)
        until(lambda: feed.is_on)
        watcher.tick()
    assert attempt.reason is Stop.ABORT


def test_a_look_that_fails_is_made_again(client: redis.Redis, feed: AbortFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    store, attempts, attempt = Store(client), Attempts(), an_attempt("a")
    watcher = AbortWatcher(store, attempts, feed)
    with attempts.holding(attempt):
        watcher.tick()
        client.set("safelight:abort:a", 1)
        until(lambda: "a" in feed._heard)
        with monkeypatch.context() as broken:
            broken.setattr(store, "aborts_wanted", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                watcher.tick()
        watcher.tick()
    assert attempt.reason is Stop.ABORT


def test_where_redis_does_not_tell_it_is_asked(
    client: redis.Redis, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client.acl_setuser(
        "dumb", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-client|tracking"]
    )
    feed = AbortFeed(connect(Settings(redis_url=redis_url.replace("//", "//dumb:x@")), protocol=2), "safelight:")
    feed.start()
    try:
        until(lambda: "by asking" in caplog.text)
        store, attempts, attempt = Store(client), Attempts(), an_attempt("a")
        client.set("safelight:abort:a", 1)
        with attempts.holding(attempt):
            AbortWatcher(store, attempts, feed).tick()
        assert attempt.reason is Stop.ABORT
    finally:
        feed.stop()
        client.acl_deluser("dumb")

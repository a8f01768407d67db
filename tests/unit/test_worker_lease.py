"""The lease keeper: passes aborts on, stops what is lost, and lets work go on while the store is away."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tasks.errors import StoreUnavailable
from tasks.redis_store import RedisJobStore
from tasks.store import Lease
from tests.unit.test_worker_attempt import an_attempt
from worker.attempt import Attempt, Attempts, Stop
from worker.lease import LeaseKeeper


class Answers:
    """The one method of a store that the keeper calls."""

    def __init__(self) -> None:
        self.answers: dict[str, Lease] = {}
        self.away = False

    def renew(self, leases: Mapping[str, int], lease_s: float) -> Mapping[str, Lease]:
        if self.away:
            raise StoreUnavailable("away")
        return {job_id: self.answers.get(job_id, Lease.HELD) for job_id in leases}


def test_answers_reach_the_right_attempt() -> None:
    store, attempts = Answers(), Attempts()
    store.answers = {"lost": Lease.LOST, "wanted": Lease.ABORT}
    held, lost, wanted = (an_attempt(name) for name in ("held", "lost", "wanted"))
    with attempts.holding(held), attempts.holding(lost), attempts.holding(wanted):
        LeaseKeeper(store, attempts, 10).tick()  # type: ignore[arg-type]
    assert (held.reason, lost.reason, wanted.reason) == (None, Stop.LOST, Stop.ABORT)


def test_silence_of_the_store_stops_nobody_and_its_first_answer_decides() -> None:
    store, attempts, kept, lost = Answers(), Attempts(), an_attempt("kept"), an_attempt("lost")
    keeper = LeaseKeeper(store, attempts, 10)  # type: ignore[arg-type]
    with attempts.holding(kept), attempts.holding(lost):
        store.away = True
        with pytest.raises(StoreUnavailable):
            keeper.tick()
        assert (kept.reason, lost.reason) == (None, None)
        store.away, store.answers = False, {"lost": Lease.LOST}
        keeper.tick()
        assert (kept.reason, lost.reason) == (None, Stop.LOST)


def test_others_are_judged_only_after_a_lease_of_own_beats() -> None:
    store, now = Answers(), [0.0]
    keeper = LeaseKeeper(store, Attempts(), 10, clock=lambda: now[0])  # type: ignore[arg-type]
    keeper.tick()
    assert not keeper.has_kept_for_a_lease()
    for now[0] in (2.5, 5.0, 7.5, 10.0):
        assert not keeper.has_kept_for_a_lease()
        keeper.tick()
    now[0] = 10.5
    assert keeper.has_kept_for_a_lease()
    store.away = True
    with pytest.raises(StoreUnavailable):
        keeper.tick()
    assert not keeper.has_kept_for_a_lease()


def test_a_worker_that_was_frozen_judges_nobody_until_it_has_beaten_for_a_lease_again() -> None:
    """All workers of a machine may have been: nobody has renewed, and the first to thaw must not take it all."""
    now = [0.0]
    keeper = LeaseKeeper(Answers(), Attempts(), 10, clock=lambda: now[0])  # type: ignore[arg-type]
    for now[0] in (0.0, 2.5, 5.0, 7.5, 10.5):
        keeper.tick()
    assert keeper.has_kept_for_a_lease()
    now[0] = 25.0
    assert not keeper.has_kept_for_a_lease()
    for now[0] in (25.1, 27.5, 30.0, 32.5, 35.0):
        keeper.tick()
        assert not keeper.has_kept_for_a_lease()
    now[0] = 37.5
    keeper.tick()
    assert keeper.has_kept_for_a_lease()


def test_an_idle_worker_notices_an_outage_too() -> None:
    nobody = redis.Redis(port=1, retry=Retry(NoBackoff(), 0))
    with pytest.raises(StoreUnavailable):
        LeaseKeeper(RedisJobStore(nobody), Attempts(), 10).tick()


@pytest.mark.parametrize("order", [1, -1])
def test_an_older_attempt_of_a_job_that_came_back_is_lost(order: int) -> None:
    """Whichever is seen first: its thread may have been held up between its claim and the register."""
    attempts, older = Attempts(), an_attempt()
    newer = Attempt(older.job, 2, solo=False)
    first, second = (older, newer)[::order]
    with attempts.holding(first), attempts.holding(second):
        LeaseKeeper(Answers(), attempts, 10).tick()  # type: ignore[arg-type]
    assert (older.reason, newer.reason) == (Stop.LOST, None)

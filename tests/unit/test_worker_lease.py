"""The lease keeper: passes aborts on, stops what is lost, and fences itself off when the store stays silent."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tasks.errors import StoreUnavailable
from tasks.store import Lease
from tests.unit.test_worker_attempt import an_attempt
from worker.attempt import Attempts, Stop
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


def test_silence_of_a_whole_lease_fences_and_no_less() -> None:
    store, attempts, attempt, now = Answers(), Attempts(), an_attempt(), [0.0]
    attempt.claimed_at = 0.0
    keeper = LeaseKeeper(store, attempts, 10, clock=lambda: now[0])  # type: ignore[arg-type]
    with attempts.holding(attempt):
        keeper.tick()
        store.away = True
        for moment, reason in ((9.9, None), (10.1, Stop.LOST)):
            now[0] = moment
            with pytest.raises(StoreUnavailable):
                keeper.tick()
            assert attempt.reason is reason


def test_others_are_judged_only_after_a_lease_of_own_beats() -> None:
    store, now = Answers(), [0.0]
    keeper = LeaseKeeper(store, Attempts(), 10, clock=lambda: now[0])  # type: ignore[arg-type]
    keeper.tick()
    assert not keeper.has_kept_for_a_lease()
    now[0] = 10.5
    keeper.tick()
    assert keeper.has_kept_for_a_lease()
    store.away = True
    with pytest.raises(StoreUnavailable):
        keeper.tick()
    assert not keeper.has_kept_for_a_lease()

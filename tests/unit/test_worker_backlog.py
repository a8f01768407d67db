"""The bound on what waits for the object store: it closes the worker, and never for good."""

from __future__ import annotations

from pathlib import Path

from tests.unit.test_worker_attempt import an_attempt
from tests.unit.test_worker_spool import BODIES, a_job, manifest_of
from worker.attempt import Attempt
from worker.backlog import Backlog
from worker.outage import Outage
from worker.parcel import Parcel
from worker.spool import Spool

ROOM_FOR_TWO = 2_500 + 2 * sum(map(len, BODIES))


def spooled(spool: Spool, job_id: str) -> Parcel:
    return Parcel(manifest_of(a_job(job_id)), BODIES, spool.keep(manifest_of(a_job(job_id)), BODIES, a_job(job_id)))


def test_jobs_that_gave_up_in_an_outage_make_room_for_one_that_finds_the_store_back(tmp_path: Path) -> None:
    """With nobody left who tries the store, a worker that stayed closed would stay so for ever."""
    spool, outage = Spool(tmp_path / "spool", ROOM_FOR_TWO), Outage()
    backlog, waiting = Backlog(spool, outage, 10), dict[str, tuple[Attempt, Parcel]]()
    outage.failed()
    for job_id in ("first", "second"):
        waiting[job_id] = an_attempt(job_id), spooled(spool, job_id)
        backlog.join(*waiting[job_id])
    assert all(attempt.is_set_aside for attempt, _ in waiting.values())
    assert spooled(spool, "third").path is None
    assert backlog.is_full
    for attempt, parcel in waiting.values():  # as when patience ends
        backlog.leave(attempt)
        assert parcel.path is not None
        spool.retire(parcel.path)
    assert outage.is_away and not backlog.is_full
    assert spooled(spool, "fourth").path is not None


def test_a_spool_that_others_filled_closes_nobody_who_has_nothing_in_it(tmp_path: Path) -> None:
    theirs, mine, outage = Spool(tmp_path, ROOM_FOR_TWO), Spool(tmp_path, ROOM_FOR_TWO), Outage()
    assert all(spooled(theirs, job_id).path for job_id in ("first", "second"))
    outage.failed()
    assert spooled(mine, "third").path is None
    assert not Backlog(mine, outage, 10).is_full


def test_without_room_for_jobs_that_wait_places_are_the_bound(tmp_path: Path) -> None:
    outage = Outage()
    outage.failed()
    backlog, attempt = Backlog(Spool(tmp_path, ROOM_FOR_TWO), outage, max_jobs=0), an_attempt()
    backlog.join(attempt, spooled(Spool(tmp_path, ROOM_FOR_TWO), "j"))
    assert not attempt.is_set_aside and not backlog.is_full

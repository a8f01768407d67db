"""What jobs leave in the bucket when they end by other hands is deleted, also after an outage of the object store."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.errors import StoreUnavailable
from tests.contract.stores import Lab, memory_lab
from tests.unit.test_worker_checkpoints import CHECKPOINT, Bucket, attempt, checkpoints
from worker.sweeper import Sweeper


def aborted_while_it_waits(lab: Lab, job_id: str) -> None:
    lab.create(job_id)
    lab.store.release(job_id, lab.claim(job_id).attempt)
    lab.store.abort(job_id)
    lab.clock.advance(120)


def test_the_checkpoint_of_a_job_that_was_aborted_in_the_queue_goes() -> None:
    lab, bucket = memory_lab(), Bucket()
    kept = checkpoints(bucket)
    kept.keep(attempt(1), CHECKPOINT)
    aborted_while_it_waits(lab, attempt(1).job.id)
    assert bucket.objects
    Sweeper(lab.store, kept.delete).tick()
    assert bucket.objects == {}
    lab.clock.advance(1_000)
    assert lab.store.litter() == []


def test_an_object_store_that_is_away_is_asked_again_later() -> None:
    lab = memory_lab()
    aborted_while_it_waits(lab, "a")
    asked: list[Sequence[str]] = []

    def away(job_ids: Sequence[str]) -> None:
        asked.append(job_ids)
        if len(asked) == 1:
            raise StoreUnavailable("away")

    sweeper = Sweeper(lab.store, away)
    sweeper.tick()
    sweeper.tick()
    assert asked == [["a"]]
    lab.clock.advance(300)
    sweeper.tick()
    sweeper.tick()
    assert asked == [["a"], ["a"]]

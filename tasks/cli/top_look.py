"""One look at everything that `top` shows, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tasks.job import Job, JobStatus, rfc3339
from tasks.store import QueueStats

if TYPE_CHECKING:
    from tasks.client import Client

_MAX_RUNNING, _MAX_ENDED = 100, 20


@dataclass(frozen=True)
class Look:
    at: datetime
    queues: tuple[QueueStats, ...]
    workers: tuple[Mapping[str, Any], ...]
    #: Oldest first.
    running: tuple[Job, ...]
    #: The last that ended first.
    ended: tuple[Job, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "at": rfc3339(self.at),
            "queues": [asdict(queue) for queue in self.queues],
            "workers": [dict(worker) for worker in self.workers],
            "running": [job.to_json() for job in self.running],
            "ended": [job.to_json() for job in self.ended],
        }


def look_at(client: Client, models: Sequence[str]) -> Look:
    """Not one moment, but several just after each other. Raises `StoreUnavailable`."""
    store = client.store
    running = store.list(status=JobStatus.RUNNING, limit=_MAX_RUNNING).jobs
    ends = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.ABORTED)
    ended = [job for status in ends for job in store.list(status=status, limit=_MAX_ENDED).jobs]
    ended.sort(key=lambda job: job.finished_at or job.created_at, reverse=True)
    return Look(
        at=datetime.now(UTC),
        queues=tuple(store.queues(models)),
        workers=tuple(sorted(store.workers(), key=lambda worker: str(worker.get("name")))),
        running=tuple(sorted(running, key=lambda job: job.started_at or job.created_at)),
        ended=tuple(ended[:_MAX_ENDED]),
    )

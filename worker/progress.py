"""Progress of all live attempts, gathered in memory and written in one round trip an interval."""

from __future__ import annotations

import threading

from tasks.job import Progress, Stage
from tasks.store import JobStore

#: How far a job is when a stage begins; denoising fills the gap up to decoding.
_BEGINS: dict[Stage, float] = {
    "queued": 0.0,
    "loading": 0.0,
    "encoding": 0.01,
    "denoising": 0.03,
    "decoding": 0.93,
    "uploading": 0.96,
}


def progress_of(stage: Stage, step: int, num_steps: int) -> Progress:
    """The record of a stage, with the fraction of the whole job."""
    fraction = _BEGINS[stage]
    if stage == "denoising" and num_steps:
        fraction += (_BEGINS["decoding"] - fraction) * min(1.0, step / num_steps)
    return Progress(stage=stage, step=step, num_steps=num_steps, fraction=round(fraction, 4))


class ProgressWriter:
    """`note` is cheap and never blocks on the store; `tick` writes what changed since the last one."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._latest: dict[tuple[str, int], Progress] = {}
        self._lock = threading.Lock()

    def note(self, key: tuple[str, int], progress: Progress) -> None:
        with self._lock:
            self._latest[key] = progress

    def forget(self, key: tuple[str, int]) -> None:
        """The attempt is over: what has not been written need not be."""
        with self._lock:
            self._latest.pop(key, None)

    def tick(self) -> None:
        with self._lock:
            batch, self._latest = self._latest, {}
        if batch:
            self._store.report(batch)

"""Aborts at every boundary of a job's life; `python -m tests.chaos.abort_trials` does a thousand of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.settings import Settings
from tests.chaos.abort_trials import Boundary, run_trials, table, trial_models

SEED = 7


def num_trials(boundary: Boundary) -> int:
    """Most around the finish (report ComfyUI#2566: an abort that came too late killed the job that was next)."""
    return 200 if boundary == "finished" else 25


@pytest.mark.timeout(300)
def test_an_abort_reaches_its_own_job_alone_and_ends_it_once(redis_url: str, tmp_path: Path) -> None:
    counts = run_trials(Settings(redis_url=redis_url), trial_models(tmp_path), SEED, num_trials)
    print(table(counts))
    assert [what for count in counts.values() for what in count.wrong] == []
    # Both orders happened, so that the trials were races.
    assert sum(count.ends["aborted"] for count in counts.values()) > 100
    assert sum(count.ends["succeeded"] for count in counts.values()) > 100

"""Custody, fencing, leases and aborts in every state that two workers can bring two jobs to; and the script's word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.errors import UnknownJob
from tasks.job import Job
from tasks.store import JobStore
from tests.contract.custody_model import JOBS, Action, Explorer, World
from tests.contract.stores import Lab, memory_lab, redis_lab

#: Actions from each beginning. 6 are some 3 s of a CPU, one more doubles that.
DEPTH = 6


@cache
def explored() -> Explorer:
    explorer = Explorer()
    for _ in range(DEPTH):
        explorer.deepen()
    return explorer


def test_every_interleaving_keeps_every_promise() -> None:
    explorer = explored()
    assert len(explorer.paths) > 1000, "the search has lost its way"
    explorer.end_calmly(every=5)


@pytest.fixture
def twins(redis_url: str) -> Iterator[Callable[[], tuple[Lab, Lab]]]:
    lab = redis_lab(redis_url)
    client = redis.Redis.from_url(redis_url)

    def make() -> tuple[Lab, Lab]:
        client.flushdb()
        other = memory_lab()
        lab.clock.ms = other.clock.ms
        return other, lab

    yield make
    client.close()


def test_the_script_gives_the_same_answers(twins: Callable[[], tuple[Lab, Lab]]) -> None:
    """Along paths of the search, drawn by hypothesis, on to more actions of its choice."""
    paths = explored().paths

    @settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, len(paths) - 1), st.lists(st.integers(0, 999), max_size=12))
    def along(at: int, more: list[int]) -> None:
        worlds = [World(lab.store, lab.clock) for lab in twins()]
        for action in paths[at]:
            _both(worlds, action)
        for number in more:
            choices = list(worlds[0].actions())
            _both(worlds, choices[number % len(choices)])
        assert _jobs(worlds[0].store) == _jobs(worlds[1].store)

    along()


def _both(worlds: list[World], action: Action) -> None:
    first, second = (world.do(action) for world in worlds)
    assert first == second, action
    assert worlds[0].held == worlds[1].held


def _jobs(store: JobStore) -> list[Job | None]:
    def get(job_id: str) -> Job | None:
        try:
            return store.get(job_id)
        except UnknownJob:
            return None

    return [get(job_id) for job_id in JOBS]

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
from tests.contract.custody_model import Explorer
from tests.contract.custody_world import ALIKE, JOBS, LIMITED, Action, Setup, World
from tests.contract.stores import Lab, memory_lab, redis_lab

#: Actions from each beginning, with jobs that are alike and with two tenants at a limit.
DEPTHS = {False: 6, True: 5}
setups = pytest.mark.parametrize("setup", [ALIKE, LIMITED], ids=["one tenant", "at a limit"])


@cache
def explored(is_limited: bool) -> Explorer:
    explorer = Explorer(LIMITED if is_limited else ALIKE)
    for _ in range(DEPTHS[is_limited]):
        explorer.deepen()
    return explorer


@setups
def test_every_interleaving_keeps_every_promise(setup: Setup) -> None:
    explorer = explored(setup.is_limited)
    assert len(explorer.paths) > 1000, "the search has lost its way"
    explorer.end_calmly(every=5)


@pytest.fixture
def twins(redis_url: str) -> Iterator[Callable[[Setup], tuple[Lab, Lab]]]:
    client = redis.Redis.from_url(redis_url)

    def make(setup: Setup) -> tuple[Lab, Lab]:
        client.flushdb()
        lab, other = redis_lab(redis_url, quotas=setup.quotas), memory_lab(quotas=setup.quotas)
        lab.clock.ms = other.clock.ms
        return other, lab

    yield make
    client.close()


@setups
def test_the_script_gives_the_same_answers(twins: Callable[[Setup], tuple[Lab, Lab]], setup: Setup) -> None:
    """Along paths of the search, drawn by hypothesis, on to more actions of its choice."""
    paths = explored(setup.is_limited).paths

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, len(paths) - 1), st.lists(st.integers(0, 999), max_size=12))
    def along(at: int, more: list[int]) -> None:
        worlds = [World(lab.store, lab.clock, setup) for lab in twins(setup)]
        for action in paths[at]:
            _both(worlds, action)
        for number in more:
            choices = list(worlds[0].actions())
            _both(worlds, choices[number % len(choices)])
        assert _jobs(worlds[0].store) == _jobs(worlds[1].store)
        assert worlds[0].store.tenants() == worlds[1].store.tenants()

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

"""Engines whose devices are processes, for tests: what all of them start from, and how to look at their ranks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from engine import Completed, DiffusionEngine, DiffusionRequest, EngineConfig, OutputStream, Progress, SamplingParams
from engine.executors.front import RankLoop
from engine.executors.rank import Rank, RankState

SOON_S = 60.0
#: Of a fake whose step takes a while, and that ends or holds its process on demand.
FAKE = "fake:step_ms=10,kill_prompt=killer,hang_prompt=hang"


def request(request_id: str, **changes: Any) -> DiffusionRequest:
    top = {"prompt", "priority", "solo", "deadline_s", "resume", "image"}
    params = SamplingParams(
        **{"height": 8, "width": 8, "seed": 0, "num_inference_steps": 4}
        | {name: value for name, value in changes.items() if name not in top}
    )
    rest = {name: value for name, value in changes.items() if name in top}
    return DiffusionRequest(**{"request_id": request_id, "prompt": request_id, "params": params, **rest})


def ranks_config(**changes: Any) -> EngineConfig:
    settled = {"model": FAKE, "executor": "process", "devices": ("cpu", "cpu"), "mode": "step", "warmup": False}
    return EngineConfig(**{**settled, "restart_backoff_s": 0.05, **changes})


def ranks_of(engine: DiffusionEngine) -> tuple[Rank, ...]:
    loop = engine._loop
    assert isinstance(loop, RankLoop)
    return loop.ranks


def soon(condition: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < ends, f"never: {what}"
        time.sleep(0.01)


def all_up(engine: DiffusionEngine) -> None:
    """Until every rank serves."""
    soon(lambda: all(rank.state is RankState.UP for rank in ranks_of(engine)), "all ranks up")


def holder(engine: DiffusionEngine, request_id: str) -> Rank:
    """The rank that has the request in its hand."""
    held = {case.request_id: rank for rank in ranks_of(engine) for case in tuple(rank.cases.values())}
    return held[request_id]


def wait_for_step(stream: OutputStream, step: int) -> None:
    """Read events until so many steps are done."""
    while True:
        event = stream.get(SOON_S)
        assert event is not None, "it ended before"
        if isinstance(event, Progress) and event.step >= step:
            return


def pixels(event: object) -> list[np.ndarray]:
    assert isinstance(event, Completed), event
    return [media.pixels for media in event.media if media.pixels is not None]


def same(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return len(left) == len(right) and all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def is_gone(pid: int) -> bool:
    """Whether no such process runs, a zombie of somebody else's counting as none."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "Z"


def running(**changes: Any) -> Iterator[DiffusionEngine]:
    """For a fixture."""
    with DiffusionEngine.make_engine(ranks_config(**changes)) as engine:
        yield engine

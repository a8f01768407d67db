"""Ranks that are killed, stopped, stuck or broken: their requests, their successors, and what is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from engine import Completed, DiffusionEngine, EngineConfig, EngineDead, Failed, ModelLoadError, RankLost, Started
from tests.integration.ranks import (
    FAKE,
    SOON_S,
    all_up,
    holder,
    is_gone,
    pixels,
    ranks_config,
    ranks_of,
    request,
    running,
    same,
    soon,
    wait_for_step,
)


@pytest.fixture(scope="module")
def engine() -> Iterator[DiffusionEngine]:
    yield from running(silence_s=3.0, wave_deadline_s=3.0, max_restarts=100)


def expected(wanted: object) -> list:
    with DiffusionEngine.make_engine(EngineConfig(model=FAKE, mode="step", warmup=False)) as made:
        return pixels(made.submit(wanted).result(SOON_S))  # type: ignore[arg-type]


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_killed_or_stopped_costs_its_requests_time_only(engine: DiffusionEngine, signum: int) -> None:
    all_up(engine)
    wanted = [request(f"{signum}-{i}", num_inference_steps=100, seed=i) for i in range(4)]
    streams = [engine.submit(one) for one in wanted]
    for stream in streams:
        wait_for_step(stream, 2)
    victim = holder(engine, wanted[0].request_id)
    pid, epoch, rows_done = victim.pid, victim.epoch, engine.stats().rows_done
    assert pid is not None
    os.kill(pid, signum)
    events = [list(stream) for stream in streams]
    for one, seen in zip(wanted, events, strict=True):
        assert same(pixels(seen[-1]), expected(one))
        assert not any(isinstance(event, Started) for event in seen), "nothing is told twice"
    all_up(engine)
    assert victim.epoch == epoch + 1 and victim.pid != pid and is_gone(pid)
    soon(lambda: engine.stats().rows_done >= rows_done + 4, "what the lost one had counted stays counted")
    assert isinstance(engine.submit(request("next")).result(SOON_S), Completed)


def test_the_request_that_ends_its_process_fails_and_nobody_else(engine: DiffusionEngine) -> None:
    all_up(engine)
    wanted = [request(f"k{i}", num_inference_steps=20, prompt="killer" if i == 1 else f"k{i}") for i in range(5)]
    ends = [stream.result(SOON_S) for stream in [engine.submit(one) for one in wanted]]
    assert [type(end) for end in ends] == [Completed, Failed, Completed, Completed, Completed]
    assert isinstance(ends[1], Failed) and ends[1].retryable and "while it ran alone there" in ends[1].message


def test_a_step_that_does_not_come_ends_the_rank(engine: DiffusionEngine) -> None:
    all_up(engine)
    end = engine.submit(request("h", prompt="hang", solo=True)).result(SOON_S)
    assert isinstance(end, Failed) and end.retryable
    assert "its requests have not moved for 3 s" in end.message


def test_outputs_that_were_handed_over_are_not_made_again(engine: DiffusionEngine) -> None:
    all_up(engine)
    stream = engine.submit(request("o", num_outputs=16, num_inference_steps=60))  # more than a rank has places
    while "Chunk" not in str(type(stream.get(SOON_S))):
        pass
    os.kill(holder(engine, "o").pid or 0, signal.SIGKILL)
    end = stream.result(SOON_S)
    assert isinstance(end, Failed) and end.retryable and "had been handed over" in end.message


def test_a_call_of_a_rank_that_is_not_there_says_so(engine: DiffusionEngine) -> None:
    all_up(engine)
    rank = ranks_of(engine)[1]
    os.kill(rank.pid or 0, signal.SIGKILL)
    with pytest.raises(RankLost, match="rank 1 on cpu"):
        engine.collective_rpc("sleep", args=(1.0,))
    all_up(engine)
    assert engine.collective_rpc("echo", rank=1) == ((), {})


def test_without_a_rank_the_engine_is_dead_and_says_why() -> None:
    with DiffusionEngine.make_engine(ranks_config(devices=(), max_restarts=0)) as engine:
        stream = engine.submit(request("a", num_inference_steps=10_000))
        wait_for_step(stream, 1)
        os.kill(ranks_of(engine)[0].pid or 0, signal.SIGKILL)
        end = stream.result(SOON_S)
        assert isinstance(end, Failed) and end.retryable
        soon(lambda: engine.stats().state == "dead", "it is dead")
        with pytest.raises(EngineDead, match="no rank is left: rank 0 on auto: its process has ended"):
            engine.submit(request("b"))


def test_a_model_that_does_not_load_leaves_no_process() -> None:
    with pytest.raises(ModelLoadError, match=r"rank 0 on auto: .*fake"):
        DiffusionEngine.make_engine(ranks_config(model="fake:fail_load=1", devices=()))
    children = subprocess.run(["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    assert "fail_load" not in children.stdout


PARENT = """
import sys, time
from engine import DiffusionEngine
from tests.integration.ranks import ranks_config, ranks_of, request
if __name__ == "__main__":
    engine = DiffusionEngine.make_engine(ranks_config())
    engine.submit(request("a", num_inference_steps=100_000))
    print(*[rank.pid for rank in ranks_of(engine)], flush=True)
    time.sleep(600)
"""


def test_ranks_end_with_their_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2 and not any(map(is_gone, pids))
        parent.kill()
    soon(lambda: all(map(is_gone, pids)), "no orphan")

"""Request mode over two ranks: waves of compatible requests, a batch each, and who waits meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine import Aborted, Completed, DiffusionEngine, EngineConfig
from tests.integration.ranks import FAKE, SOON_S, holder, pixels, request, running, same, wait_for_step


@pytest.fixture(scope="module")
def engine() -> Iterator[DiffusionEngine]:
    yield from running(mode="request", max_batch_rows=4)


def test_a_wave_is_a_batch_on_each_rank(engine: DiffusionEngine) -> None:
    engine.pause(SOON_S)
    wanted = [request(f"r{i}", seed=i) for i in range(8)]
    streams = [engine.submit(one) for one in wanted]
    engine.resume(SOON_S)
    ends = [stream.result(SOON_S) for stream in streams]
    with DiffusionEngine.make_engine(EngineConfig(model=FAKE, mode="request", warmup=False)) as inline:
        for one, end in zip(wanted, ends, strict=True):
            assert isinstance(end, Completed) and end.metrics.batch_rows_max == 4
            assert len(end.metrics.mates) == 3 and set(end.metrics.mates) < {other.request_id for other in wanted}
            assert same(pixels(end), pixels(inline.submit(one).result(SOON_S)))


def test_different_ones_run_side_by_side_and_a_third_when_a_rank_is_free(engine: DiffusionEngine) -> None:
    streams = [engine.submit(request(f"s{i}", num_inference_steps=500 + i)) for i in range(2)]
    for stream in streams:
        wait_for_step(stream, 1)
    first = holder(engine, "s0")
    assert holder(engine, "s1") is not first
    third = engine.submit(request("t"))
    engine.abort("s0")
    end = streams[0].result(SOON_S)
    assert isinstance(end, Aborted) and end.step
    assert isinstance(third.result(SOON_S), Completed)
    assert not streams[1].done
    assert engine.export("s1", SOON_S) is None, "a batch has no checkpoints"
    streams[1].close()
    assert isinstance(streams[1].result(SOON_S), Aborted)

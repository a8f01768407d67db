"""A real pipeline in a rank: the pictures of the same engine in this process, to the last bit."""

from __future__ import annotations

import pytest

from engine import Completed, DiffusionEngine, EngineConfig
from tests.integration.ranks import pixels, request, same

#: Importing torch and diffusers, on a busy machine, in a process of its own.
SLOW_S = 240.0


@pytest.mark.timeout(300)
def test_a_rank_makes_what_this_process_makes() -> None:
    settled = {"model": "bundled:tiny", "mode": "step", "warmup": False, "num_threads": 1, "dtype": "float32"}
    wanted = [request(f"r{i}", height=64, width=64 + 8 * i, num_inference_steps=3, seed=i) for i in range(2)]
    with DiffusionEngine.make_engine(EngineConfig(**settled, executor="process", devices=("cpu",))) as ranks:
        streams = [ranks.submit(one) for one in wanted]
        ends = [stream.result(SLOW_S) for stream in streams]
        found = ranks.capabilities
    with DiffusionEngine.make_engine(EngineConfig(**settled, device="cpu")) as inline:
        assert found == inline.capabilities
        for one, end in zip(wanted, ends, strict=True):
            assert isinstance(end, Completed) and end.metrics.batch_rows_max == 1, "sizes that share no forward"
            assert same(pixels(end), pixels(inline.submit(one).result(SLOW_S)))

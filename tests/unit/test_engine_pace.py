"""A request that cannot be done by its deadline fails before it costs the device a step, in both modes."""

from typing import Any

import pytest

from engine import Completed, DiffusionEngine, EngineConfig, Failed
from engine.batch_key import BatchKey
from engine.pace import Pace
from engine.testing import FakeAdapter, FakeSpec
from tests.unit.test_engine_steps import SOON_S, request


def key(**changes: Any) -> BatchKey:
    fields = {"height": 8, "width": 8, "num_inference_steps": 10, "guidance_scale": 1.0, "has_negative": False}
    return BatchKey(task="text2image", **{**fields, **changes})


def test_the_least_is_the_fastest_seen_of_the_footprint() -> None:
    pace = Pace()
    assert pace.least_s(key()) == 0
    for seconds in (0.3, 0.2, 0.4):
        pace.note(key(num_inference_steps=3), seconds)
    assert pace.least_s(key()) == pytest.approx(2.0)
    assert pace.least_s(key(strength=0.5)) == pytest.approx(1.0)
    assert pace.least_s(key(height=16)) == 0


@pytest.mark.parametrize("mode", ["request", "step"])
def test_what_cannot_be_done_in_time_never_starts(mode: Any) -> None:
    adapter = FakeAdapter(FakeSpec(step_ms=20), mode=mode)
    with DiffusionEngine.make_engine(EngineConfig(model="fake:", mode=mode, warmup=False), adapter=adapter) as engine:
        assert isinstance(engine.submit(request("a")).result(SOON_S), Completed)
        ran = len(adapter.calls), len(adapter.forwards)
        end = engine.submit(request("b", num_inference_steps=1000, deadline_s=5.0)).result(SOON_S)
        assert isinstance(end, Failed)
        assert end.error_type == "deadline_exceeded"
        assert "at the least" in end.message
        assert (len(adapter.calls), len(adapter.forwards)) == ran
        assert isinstance(engine.submit(request("c", deadline_s=SOON_S)).result(SOON_S), Completed)


@pytest.mark.parametrize("mode", ["request", "step"])
def test_it_is_looked_at_again_after_waiting(mode: Any) -> None:
    """Possible when it came, impossible when its turn comes."""
    adapter = FakeAdapter(FakeSpec(step_ms=20), mode=mode)
    config = EngineConfig(model="fake:", mode=mode, warmup=False, max_batch_rows=1)
    with DiffusionEngine.make_engine(config, adapter=adapter) as engine:
        assert isinstance(engine.submit(request("warm")).result(SOON_S), Completed)
        engine.submit(request("long", num_inference_steps=40))
        ran = len(adapter.calls)
        end = engine.submit(request("b", num_inference_steps=40, deadline_s=1.2)).result(SOON_S)
        assert isinstance(end, Failed)
        assert "at the least" in end.message
        assert len(adapter.calls) <= ran + 1

"""A request that leaves one engine at a step boundary and goes on in another, as bytes; on a model of arithmetic."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import (
    Aborted,
    Checkpoint,
    Completed,
    DiffusionEngine,
    DiffusionRequest,
    EngineConfig,
    NotACheckpoint,
    Progress,
    SamplingParams,
)
from engine.checkpoint import RowState
from engine.testing import FakeAdapter, StepGate
from tests.unit.test_engine_steps import SOON_S, Rig, completed, pixels, request, solo

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
states = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(state=st.dictionaries(st.text(), states, max_size=3), step=st.integers(1, 99))
def test_bytes_there_and_back(state: dict[str, Any], step: int) -> None:
    made = Checkpoint("f", (RowState(0, step, state),))
    assert Checkpoint.from_bytes(made.to_bytes()) == made


def test_arrays_keep_shape_and_bits() -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": [np.zeros((0, 2)), np.float64(0.1)]}
    (row,) = Checkpoint.from_bytes(Checkpoint("f", (RowState(0, 1, arrays),)).to_bytes()).rows
    assert np.array_equal(row.state["a"], arrays["a"])
    assert row.state["a"].dtype == np.float32
    assert row.state["b"][0].shape == (0, 2)
    assert row.state["b"][1] == 0.1


@pytest.mark.parametrize("data", [b"", b"12345678", b"\xff" * 40, b"\x02\0\0\0\0\0\0\0{}"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(NotACheckpoint):
        Checkpoint.from_bytes(data)


def test_code_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot hold a function"):
        Checkpoint("f", (RowState(0, 1, {"x": lambda: None}),)).to_bytes()


def leave(wanted: DiffusionRequest, num_steps: int) -> bytes:
    """Run it for so many steps, then take it out."""
    with Rig(gated=True) as rig:
        stream = rig.engine.submit(wanted)
        for _ in range(num_steps):
            rig.gate.wait()
            rig.gate.let()
        rig.gate.wait()
        rig.gate.let()
        call = rig.engine.export(wanted.request_id, SOON_S)
        assert call is not None
        assert isinstance(stream.result(SOON_S), Aborted)
        return call.to_bytes()


@pytest.mark.parametrize("num_steps", [0, 1, 2])
@pytest.mark.parametrize("num_outputs", [1, 3])
def test_it_goes_on_without_a_step_done_twice(num_steps: int, num_outputs: int) -> None:
    wanted = request("a", num_outputs=num_outputs, num_inference_steps=5)
    checkpoint = Checkpoint.from_bytes(leave(wanted, num_steps))
    assert checkpoint.step >= num_steps + 1
    with Rig() as rig:
        again = DiffusionRequest(request_id="b", prompt=wanted.prompt, params=wanted.params, resume=checkpoint)
        for got, alone in zip(pixels(rig.run(again)[0]), solo(wanted), strict=True):
            assert np.array_equal(got, alone)
        assert sum(len(members) for members in rig.shared()) == num_outputs * (5 - checkpoint.step)


def test_a_second_drain_keeps_what_has_not_gone_on_yet() -> None:
    """Four rows half done, resumed where two have room: all are as far as before in the next checkpoint."""
    wanted = request("a", num_outputs=4, num_inference_steps=9)
    first = Checkpoint.from_bytes(leave(wanted, 3))
    assert len(first.rows) == 4
    again = DiffusionRequest(request_id="b", prompt=wanted.prompt, params=wanted.params, resume=first)
    with Rig(gated=True, max_batch_rows=2) as rig:
        rig.engine.submit(again)
        rig.gate.wait()
        rig.gate.let()
        second = rig.engine.export("b", SOON_S)
    assert second is not None
    assert sorted(row.index for row in second.rows) == [0, 1, 2, 3]
    assert min(row.step for row in second.rows) >= first.step
    with Rig() as rig:
        last = DiffusionRequest(request_id="c", prompt=wanted.prompt, params=wanted.params, resume=second)
        for got, alone in zip(pixels(rig.run(last)[0]), solo(wanted), strict=True):
            assert np.array_equal(got, alone)


def test_with_a_checkpoint_of_another_request_it_begins_anew_and_says_so() -> None:
    checkpoint = Checkpoint.from_bytes(leave(request("a"), 0))
    with Rig() as rig:
        params = SamplingParams(height=8, width=8, seed=1, num_inference_steps=4)
        end = rig.engine.submit(DiffusionRequest(request_id="b", prompt="a", params=params, resume=checkpoint)).result(
            SOON_S
        )
        assert isinstance(end, Completed)
        assert "another request or model" in end.warnings[0]
        assert len(rig.shared()) == 4


def test_request_mode_has_none_and_says_so_while_its_batch_runs() -> None:
    gate = StepGate()
    adapter = FakeAdapter(sleep=gate)
    with DiffusionEngine.make_engine(EngineConfig(model="fake:", warmup=False), adapter=adapter) as engine:
        engine.submit(request("a"))
        gate.wait()
        assert engine.export("a", SOON_S) is None
        gate.open()


def test_what_is_not_under_way_has_no_checkpoint_and_ends_before_it_has_one() -> None:
    """Whoever exports goes on elsewhere: a step between the answer and an abort would be done twice."""
    with Rig() as rig:
        assert rig.engine.export("unknown", SOON_S) is None
        rig.engine.pause()
        stream = rig.engine.submit(request("a"))
        assert rig.engine.export("a", SOON_S) is None
        rig.engine.resume()
        assert isinstance(stream.result(SOON_S), Aborted)
        assert rig.shared() == []


@pytest.mark.parametrize("num_done", [1, 2])
def test_finished_rows_are_delivered_and_the_others_go_on(num_done: int) -> None:
    wanted = request("a", num_outputs=3)
    with Rig() as rig:
        whole = completed(rig.run(wanted)[0])
        sealed = rig.engine.sealed(wanted, whole.media[:num_done])
        assert sealed is not None
        resume = Checkpoint.from_bytes(sealed.to_bytes())
    again = DiffusionRequest(request_id="b", prompt="a", params=wanted.params, resume=resume)
    with Rig(max_batch_rows=1) as rig:
        stream = rig.engine.submit(again)
        events = list(stream)
        for got, alone in zip(pixels(events[-1]), solo(wanted), strict=True):
            assert np.array_equal(got, alone)
        steps = [event.step for event in events if isinstance(event, Progress)]
        assert steps == sorted(steps)
        assert steps[0] >= num_done * 4 // 3


def test_a_state_that_does_not_work_begins_anew_and_says_so() -> None:
    wanted = request("a")
    good = Checkpoint.from_bytes(leave(wanted, 0))
    bad = Checkpoint(good.fingerprint, (RowState(0, good.step, {"wrong": 1}),))
    with Rig() as rig:
        again = DiffusionRequest(request_id="b", prompt="a", params=wanted.params, resume=bad)
        (event,) = rig.run(again)
        assert np.array_equal(pixels(event)[0], solo(wanted)[0])
        assert "did not work" in completed(event).warnings[0]


def test_a_row_that_left_before_its_decoding_ends() -> None:
    wanted = request("a", num_inference_steps=2)
    with Rig() as rig:
        state = RowState(0, 2, {"latents": np.full((8, 8, 3), 0.5)})
        fingerprint = rig.engine.sealed(wanted, ()).fingerprint  # type: ignore[union-attr]
        again = DiffusionRequest(
            request_id="b", prompt="a", params=wanted.params, resume=Checkpoint(fingerprint, (state,))
        )
        assert isinstance(rig.run(again)[0], Completed)
        assert rig.shared() == []

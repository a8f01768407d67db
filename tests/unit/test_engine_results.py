"""What comes out of the engine: each output as soon as it is done, errors of the right kind, times by their names."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import engine as face
from engine import (
    Capabilities,
    Chunk,
    Completed,
    DiffusionEngine,
    DiffusionRequest,
    EngineConfig,
    Event,
    Failed,
    InvalidRequest,
    SamplingParams,
)
from engine.adapter import RowOutcome, StepHook
from engine.batch import Batch
from engine.errors import InvalidImage, RequestError
from engine.testing import FakeAdapter, StepGate

SOON_S = 20.0


def request(request_id: str, **changes: Any) -> DiffusionRequest:
    params = SamplingParams(**{"height": 8, "width": 8, "seed": 0, "num_inference_steps": 2, **changes})
    return DiffusionRequest(request_id=request_id, prompt=request_id, params=params)


def run(adapter: FakeAdapter, *requests: DiffusionRequest, **changes: Any) -> list[list[Event]]:
    """All events of each."""
    config = EngineConfig(**{"model": "fake:", "warmup": False, "admission_wait_ms": 0, **changes})
    with DiffusionEngine.make_engine(config, adapter=adapter) as engine:
        engine.pause()
        streams = [engine.step_streaming(one) for one in requests]
        engine.resume()
        return [list(stream) for stream in streams]


@pytest.mark.parametrize(("mode", "max_batch_rows"), [("request", 2), ("step", 2), ("step", 1)])
def test_each_output_but_the_last_comes_as_a_chunk_when_it_is_done(mode: Any, max_batch_rows: int) -> None:
    gate = StepGate()
    config = EngineConfig(model="fake:", warmup=False, mode=mode, max_batch_rows=max_batch_rows)
    with DiffusionEngine.make_engine(config, adapter=FakeAdapter(mode=mode, sleep=gate)) as engine:
        events = iter(engine.step_streaming(request("a", num_outputs=4, seed=7)))
        gate.let(2)  # all steps of those that come first; the others stand at the gate until the first chunk is read
        first = next(event for event in events if isinstance(event, Chunk | Completed | Failed))
        gate.open()
        *rest, done = events
    assert isinstance(first, Chunk)
    assert isinstance(done, Completed)
    chunks = [first, *(event for event in rest if isinstance(event, Chunk))]
    assert [(chunk.index, chunk.num_chunks, chunk.media.seed) for chunk in chunks] == [(0, 4, 7), (1, 4, 8), (2, 4, 9)]
    assert all(chunk.media is done.media[chunk.index] for chunk in chunks)


def test_a_single_output_is_no_chunk() -> None:
    (events,) = run(FakeAdapter(), request("a"))
    assert not any(isinstance(event, Chunk) for event in events)


class Forgetful(FakeAdapter):
    """Gives nothing for the rows of requests named b."""

    def run(self, batch: Batch, on_step: StepHook) -> Sequence[RowOutcome]:
        outcomes = super().run(batch, on_step)
        rows = zip(batch.rows, outcomes, strict=True)
        return [None if row.request.request_id == "b" else outcome for row, outcome in rows]  # type: ignore[misc]


def test_a_row_without_an_output_fails_its_request_alone() -> None:
    """The seed delivers it as a success that is empty."""
    good, bad, other = (events[-1] for events in run(Forgetful(), *map(request, "abc")))
    assert isinstance(good, Completed)
    assert isinstance(other, Completed)
    assert isinstance(bad, Failed)
    assert (bad.error_type, bad.message) == ("model_error", "output 0: the model gave none")


@pytest.mark.parametrize(
    ("error", "error_type", "has_traceback"),
    [
        (InvalidRequest("too wide"), "invalid_request", False),
        (InvalidImage("no picture"), "invalid_image", False),
        (ValueError("a shape"), "model_error", True),
        (RequestError("odd"), "internal", False),
    ],
)
def test_the_class_of_an_error_reaches_the_caller(error: Exception, error_type: str, has_traceback: bool) -> None:
    class Raises(FakeAdapter):
        def run(self, batch: Batch, on_step: StepHook) -> Sequence[RowOutcome]:
            if any(row.request.request_id == "b" for row in batch.rows):
                raise error
            return super().run(batch, on_step)

    mate, failed = (events[-1] for events in run(Raises(), *map(request, "ab")))
    assert isinstance(mate, Completed)
    assert isinstance(failed, Failed)
    assert (failed.error_type, failed.message) == (error_type, str(error))
    assert (failed.traceback is not None) == has_traceback


@pytest.mark.parametrize("mode", ["request", "step"])
def test_times_have_the_names_that_dashboards_know(mode: Any) -> None:
    (events,) = run(FakeAdapter(mode=mode), request("a"), mode=mode)
    done = events[-1]
    assert isinstance(done, Completed)
    named = done.metrics.vllm_omni()
    parts = ("scheduler_queue_wait_ms", "forward_time_ms", "vae_decode_time_ms")
    assert named.keys() == {*parts, "diffusion_engine_total_time_ms"}
    assert min(named.values()) >= 0
    assert named["diffusion_engine_total_time_ms"] >= sum(named[part] for part in parts) - 1


class OneByOne(FakeAdapter):
    """A model whose rows must not share a call."""

    def load(self) -> Capabilities:
        return replace(super().load(), max_rows=1)


def test_a_model_that_must_not_be_batched_is_served_one_by_one_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    adapter = OneByOne()
    with caplog.at_level(logging.WARNING):
        events = run(adapter, *map(request, "abc"), max_batch_rows=4)
    assert all(isinstance(each[-1], Completed) for each in events)
    assert [len(call.rows) for call in adapter.calls] == [1, 1, 1]
    assert "max_batch_rows is 1, not 4" in caplog.text


def test_step_mode_waits_for_nobody() -> None:
    (events,) = run(FakeAdapter(mode="step"), request("a"), mode="step", admission_wait_ms=60_000)
    done = events[-1]
    assert isinstance(done, Completed)
    assert done.metrics.queue_ms < 10_000


def test_the_face_has_every_name_that_it_promises() -> None:
    assert [name for name in face.__all__ if not hasattr(face, name)] == []
    assert sorted(face.__all__) == face.__all__

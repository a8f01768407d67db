"""Outputs are finished beside the device, which goes on: in order, once, and none is lost for having taken long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from engine import (
    Aborted,
    Checkpoint,
    Chunk,
    Completed,
    DiffusionEngine,
    DiffusionRequest,
    EngineConfig,
    Failed,
    SamplingParams,
)
from engine.adapter import Output, RowCall, RowOutcome, StepHook
from engine.batch import Batch
from engine.errors import DeviceLost, ModelError
from engine.pending import Pending, settled
from engine.result import Media
from engine.testing import FakeAdapter, FakeRowCall

SOON_S = 20.0


class LateAdapter(FakeAdapter):
    """The copies of rows whose prompt has the word `slow` come when `copies` is set, and not before."""

    def __init__(self, mode: Any = "request") -> None:
        super().__init__(mode=mode)
        self.copies = threading.Event()
        self.finished_on: list[str] = []
        self.spoil: Exception | None = None

    def _late(self, prompt: str, outcome: RowOutcome | None) -> RowOutcome | Pending | None:
        if not isinstance(outcome, Output):
            return outcome
        made = outcome

        def make() -> Output:
            self.finished_on.append(threading.current_thread().name)
            assert "slow" not in prompt or self.copies.wait(SOON_S)
            if self.spoil is not None:
                raise self.spoil
            return made

        return Pending(make)

    def run(self, batch: Batch, on_step: StepHook) -> Sequence[Any]:
        outcomes = super().run(batch, on_step)
        return [self._late(row.request.prompt, one) for row, one in zip(batch.rows, outcomes, strict=True)]

    def advance(self, calls: Sequence[RowCall]) -> None:
        super().advance(calls)
        for call in calls:
            assert isinstance(call, FakeRowCall)
            call.outcome = self._late(call.row.request.prompt, call.outcome)  # type: ignore[assignment]


def request(request_id: str, prompt: str = "", **params: Any) -> DiffusionRequest:
    sampling = SamplingParams(**{"height": 8, "width": 8, "seed": 0, "num_inference_steps": 2, **params})
    return DiffusionRequest(request_id=request_id, prompt=prompt or request_id, params=sampling)


@pytest.fixture(params=["request", "step"])
def late(request: pytest.FixtureRequest) -> LateAdapter:
    return LateAdapter(request.param)


@pytest.fixture
def engine(late: LateAdapter) -> Iterator[DiffusionEngine]:
    config = EngineConfig(model="fake:", warmup=False, admission_wait_ms=0, max_batch_rows=1)
    with DiffusionEngine.make_engine(config, adapter=late) as made:
        yield made
        late.copies.set()


def until_batches(engine: DiffusionEngine, rows: int) -> None:
    """The device is done with so many rows."""
    done = threading.Event()
    while engine.stats().rows_done < rows:
        assert not done.wait(0.001)


def test_the_next_rows_run_before_the_first_are_copied(engine: DiffusionEngine, late: LateAdapter) -> None:
    first, second = engine.submit(request("a", "slow")), engine.submit(request("b"))
    until_batches(engine, 2)
    assert not first.done
    late.copies.set()
    ends = [stream.result(SOON_S) for stream in (first, second)]
    assert all(isinstance(end, Completed) for end in ends)
    assert set(late.finished_on) == {"safelight-finisher"}


def test_outputs_are_what_they_are_without(engine: DiffusionEngine, late: LateAdapter) -> None:
    late.copies.set()
    wanted = request("a", seed=3, num_outputs=3)
    events = list(engine.submit(wanted))
    with DiffusionEngine.make_engine(EngineConfig(model="fake:", warmup=False)) as plain:
        expected = plain.submit(wanted).result(SOON_S)
    done = events[-1]
    assert isinstance(done, Completed)
    assert isinstance(expected, Completed)
    assert all(np.array_equal(a.pixels, b.pixels) for a, b in zip(done.media, expected.media, strict=True))
    assert sorted(event.index for event in events if isinstance(event, Chunk)) == [0, 1]


def test_an_abort_does_not_wait_for_a_copy(engine: DiffusionEngine, late: LateAdapter) -> None:
    stream = engine.submit(request("a", "slow"))
    until_batches(engine, 1)
    engine.abort("a")
    assert isinstance(stream.result(SOON_S), Aborted)
    late.copies.set()
    assert isinstance(engine.submit(request("a", "again")).result(SOON_S), Completed), "the id is free"


def test_a_row_that_comes_to_nothing_ends_its_request_alone(engine: DiffusionEngine, late: LateAdapter) -> None:
    late.spoil = ModelError("output 0 is not finite")
    bad = engine.submit(request("a", num_outputs=2)).result(SOON_S)
    assert isinstance(bad, Failed)
    assert (bad.error_type, bad.message) == ("model_error", "output 0 is not finite")
    assert bad.metrics is not None
    late.spoil = None
    assert isinstance(engine.submit(request("b")).result(SOON_S), Completed)


def test_a_copy_that_fails_asks_the_device(
    engine: DiffusionEngine, late: LateAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> None:
        raise DeviceLost("it fell off the bus")

    late.spoil = RuntimeError("CUDA error: an illegal memory access was encountered")
    assert isinstance(engine.submit(request("a")).result(SOON_S), Failed)
    assert engine.stats().state == "running", "the device says that it is well"
    monkeypatch.setattr(late, "probe", lost)
    end = engine.submit(request("b")).result(SOON_S)
    assert isinstance(end, Failed)
    assert end.retryable


def test_a_finished_row_is_in_the_checkpoint() -> None:
    """Though its copy is still under way when the request has to leave."""
    late = LateAdapter("step")
    config = EngineConfig(model="fake:", warmup=False, max_batch_rows=1)
    with DiffusionEngine.make_engine(config, adapter=late) as engine:
        stream = engine.submit(request("a", "slow", num_outputs=2, num_inference_steps=2))
        until_batches(engine, 1)
        threading.Timer(0.05, late.copies.set).start()
        checkpoint = engine.export("a", SOON_S)
        end = stream.result(SOON_S)
    assert isinstance(end, Completed) or (isinstance(checkpoint, Checkpoint) and 0 in checkpoint.done)


def test_a_call_finds_no_row_that_is_neither_under_way_nor_done(engine: DiffusionEngine, late: LateAdapter) -> None:
    stream, found = engine.submit(request("a", "slow")), []
    until_batches(engine, 1)
    caller = threading.Thread(target=lambda: (engine.pause(SOON_S), found.append(stream.done)))
    caller.start()
    caller.join(0.2)  # as long as it has no reason to wait it is back by then
    late.copies.set()
    caller.join(SOON_S)
    assert found == [True]


def test_close_ends_what_is_not_copied_yet(late: LateAdapter) -> None:
    engine = DiffusionEngine.make_engine(EngineConfig(model="fake:", warmup=False, admission_wait_ms=0), adapter=late)
    stream = engine.submit(request("a", "slow"))
    until_batches(engine, 1)
    closing = threading.Thread(target=engine.close)
    closing.start()
    end = stream.result(SOON_S)
    late.copies.set()
    closing.join(SOON_S)
    assert isinstance(end, Failed)
    assert end.retryable
    assert late.closed


def test_settled_waits_here_and_now() -> None:
    output = Output(Media(pixels=np.zeros((1, 1, 3), np.uint8), seed=0))
    made: Callable[[], Output] = lambda: output  # noqa: E731
    assert settled(Pending(made)) is output
    assert settled(output) is output
    error = ModelError("no")

    def broken() -> Output:
        raise error

    assert settled(Pending(broken)) is error

"""Five scenarios in which the engine that this one is measured against loses a wake-up, a stream or its own shutdown.

The numbers are those of docs/seed-parity.md. Each test fails on the behaviour that the table describes.
"""

import asyncio
import threading
import time
from typing import Any

import pytest

from engine import (
    Aborted,
    Completed,
    DiffusionEngine,
    DiffusionRequest,
    EngineClosed,
    EngineConfig,
    Event,
    Failed,
    SamplingParams,
    Started,
)
from engine.testing import FakeAdapter, StepGate

SOON_S = 20.0
PROMPTLY_S = 2.0

MODES = pytest.mark.parametrize("mode", ["request", "step"])


def request(request_id: str, num_inference_steps: int = 2) -> DiffusionRequest:
    params = SamplingParams(height=8, width=8, seed=0, num_inference_steps=num_inference_steps)
    return DiffusionRequest(request_id=request_id, prompt=request_id, params=params)


class Rig:
    """An engine whose device thread stands before each step."""

    def __init__(self, mode: Any = "request", **changes: Any) -> None:
        self.gate = StepGate()
        self.adapter = FakeAdapter(sleep=self.gate, mode=mode)
        config = EngineConfig(model="fake:", warmup=False, admission_wait_ms=0, mode=mode, **changes)
        self.engine = DiffusionEngine.make_engine(config, adapter=self.adapter)

    def __enter__(self) -> "Rig":
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.open()
        self.engine.close()

    def steps_of(self, request_id: str) -> int:
        """Denoise steps that the device did for a request."""
        calls = sum(len(call.steps) for call in self.adapter.calls if call.rows[0][0] == request_id)
        return calls + sum(
            forward.stage == "denoising" and forward.rows[0][0] == request_id for forward in self.adapter.forwards
        )


async def last_event(engine: DiffusionEngine, request_id: str) -> Event:
    """Waits on nothing but the stream: no timer of the loop can wake it by chance."""
    events = [event async for event in engine.step_streaming(request(request_id))]
    return events[-1]


@MODES
def test_row_12_every_event_loop_is_woken(mode: Any) -> None:
    """Seed: bound to the first loop for ever; a later loop sleeps on until one of its own timers fires."""
    with Rig(mode) as rig:
        for name in "abc":
            opener = threading.Timer(0.1, rig.gate.let, (2,))  # the loop is asleep by then
            opener.start()
            began = time.monotonic()
            assert isinstance(asyncio.run(last_event(rig.engine, name)), Completed)
            assert time.monotonic() - began < PROMPTLY_S


def test_row_12_event_loops_side_by_side() -> None:
    with Rig() as rig:
        ends: list[Event] = []
        threads = [
            threading.Thread(target=lambda name=name: ends.append(asyncio.run(last_event(rig.engine, name))))
            for name in "abcd"
        ]
        for thread in threads:
            thread.start()
        rig.gate.wait()
        rig.gate.open()
        for thread in threads:
            thread.join(SOON_S)
        assert sorted(end.request_id for end in ends if isinstance(end, Completed)) == list("abcd")


def test_row_12_fifty_first_calls_find_one_thread() -> None:
    with DiffusionEngine.make_engine(EngineConfig(model="fake:", warmup=False)) as engine:

        async def run() -> list[Event]:
            return await asyncio.gather(*(last_event(engine, f"r{i}") for i in range(50)))

        assert all(isinstance(event, Completed) for event in asyncio.run(run()))
        assert [thread.name for thread in threading.enumerate()].count("safelight-device") == 1


@MODES
@pytest.mark.parametrize("leave", ["cancel", "break", "timeout"])
def test_row_19_who_stops_listening_frees_the_device(mode: Any, leave: str) -> None:
    """Seed: the request runs on to its end and its output is dropped."""
    with Rig(mode) as rig:
        started = asyncio.Event()

        async def listen() -> None:
            async for event in rig.engine.step_streaming(request("a", num_inference_steps=50)):
                if isinstance(event, Started):
                    started.set()
                    if leave == "break":
                        break

        async def run() -> None:
            if leave == "timeout":
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(listen(), 0.1)
                return
            task = asyncio.create_task(listen())
            await started.wait()
            if leave == "cancel":
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(run())
        rig.gate.open()
        assert isinstance(rig.engine.submit(request("b")).result(SOON_S), Completed)
        assert rig.steps_of("a") <= 1


@MODES
def test_row_30_an_aborted_waiter_ends_while_another_runs_and_nothing_else_waits(mode: Any) -> None:
    """Seed: its stream stays open until the next request arrives."""
    with Rig(mode, max_batch_rows=1) as rig:
        running = rig.engine.submit(request("a", num_inference_steps=3))
        rig.gate.wait()
        waiting = rig.engine.submit(request("b"))
        rig.engine.abort("b")
        rig.gate.let(1)  # b ends at the next step of a, not with a
        assert waiting.result(PROMPTLY_S) == Aborted("b", None)
        assert not running.done
        rig.gate.open()
        assert isinstance(running.result(SOON_S), Completed)
        assert rig.engine.stats().waiting_rows == 0


@MODES
def test_row_30_and_on_an_idle_device_at_once(mode: Any) -> None:
    with Rig(mode) as rig:
        rig.engine.pause()
        stream = rig.engine.submit(request("a"))
        rig.engine.abort("a")
        assert stream.result(PROMPTLY_S) == Aborted("a", None)


def test_row_39_a_call_after_the_end_raises_at_once() -> None:
    """Seed: a call without a timeout waits for ever, for a thread that has gone."""
    engine = DiffusionEngine.make_engine(EngineConfig(model="fake:", warmup=False))
    engine.close()
    with pytest.raises(EngineClosed):
        engine.collective_rpc("echo")
    with pytest.raises(EngineClosed):
        asyncio.run(engine.async_collective_rpc("echo"))


def test_row_39_calls_that_race_with_close_all_return() -> None:
    for _ in range(20):
        engine = DiffusionEngine.make_engine(EngineConfig(model="fake:", warmup=False))
        ends: list[str] = []

        def call(engine: DiffusionEngine = engine, ends: list[str] = ends) -> None:
            try:
                for _ in range(10_000):
                    engine.collective_rpc("echo")
            except EngineClosed:
                ends.append("closed")

        threads = [threading.Thread(target=call, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        engine.close()
        for thread in threads:
            thread.join(SOON_S)
        assert ends == ["closed"] * 4


@MODES
def test_row_44_a_close_that_gave_up_waiting_is_finished_by_the_device_thread(mode: Any) -> None:
    """Seed: warns, returns, and leaves the model and its thread until somebody calls `close` again."""
    with Rig(mode) as rig:
        running, waiting = rig.engine.submit(request("a")), rig.engine.submit(request("b"))
        rig.gate.wait()
        began = time.monotonic()
        rig.engine.close(timeout_s=0.05)
        assert time.monotonic() - began < PROMPTLY_S
        for stream in (running, waiting):
            assert isinstance(stream.result(0), Failed)
        assert not rig.adapter.closed
        rig.gate.open()
        rig.engine._thread.join(SOON_S)  # and nobody calls close again
        assert rig.adapter.closed
        assert rig.engine.stats().state == "closed"

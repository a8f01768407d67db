"""Who talks to an engine: event loops, and calls between two batches."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from engine import (
    Aborted,
    Completed,
    DiffusionEngine,
    Event,
)
from tests.unit.engines import SOON_S, Gated, completed, config, request


@pytest.fixture
def engine() -> Iterator[DiffusionEngine]:
    with DiffusionEngine.make_engine(config()) as made:
        yield made


class TestAsync:
    def test_two_event_loops_in_sequence(self, engine: DiffusionEngine) -> None:
        """The seed binds its thread to the first loop for ever."""

        async def run(name: str) -> Event:
            events = [event async for event in engine.submit(request(name))]
            return events[-1]

        start = time.monotonic()
        for name in "ab":
            completed(asyncio.run(run(name)))
        assert time.monotonic() - start < 4

    def test_the_loop_keeps_turning(self, engine: DiffusionEngine) -> None:
        async def run() -> int:
            stream = engine.submit(request("a", num_inference_steps=20))
            ticks = 0
            while not stream.done:
                ticks += 1
                await asyncio.sleep(0)
            return ticks

        assert asyncio.run(run()) > 0

    def test_cancelled_consumer_aborts(self) -> None:
        with Gated() as gated:

            async def consume() -> None:
                async for _ in gated.engine.submit(request("a")):
                    pass

            async def run() -> None:
                task = asyncio.create_task(consume())
                await asyncio.sleep(0.05)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

            asyncio.run(run())
            gated.gate.open()
            completed(gated.engine.submit(request("b")).result(SOON_S))
            assert len(gated.adapter.calls[0].steps) == 1


class TestCalls:
    def test_result_arguments_and_errors(self, engine: DiffusionEngine) -> None:
        assert engine.collective_rpc("echo", args=(1,), kwargs={"x": 2}) == ((1,), {"x": 2})
        with pytest.raises(TypeError):
            engine.collective_rpc("sleep", args=("x",))
        with pytest.raises(ValueError, match="unknown method 'nope'; there are: echo"):
            engine.collective_rpc("nope")
        assert engine.collective_rpc("echo") == ((), {})

    def test_a_call_waits_for_the_running_batch(self) -> None:
        with Gated() as gated:
            stream = gated.engine.submit(request("a"))
            gated.gate.wait()
            with pytest.raises(TimeoutError, match="before execution"):
                gated.engine.collective_rpc("echo", timeout=0.05)
            gated.gate.open()
            completed(stream.result(SOON_S))
            gated.engine.collective_rpc("echo", timeout=SOON_S)

    def test_a_call_that_timed_out_in_the_queue_is_never_made(self) -> None:
        with Gated() as gated:
            gated.engine.submit(request("a"))
            gated.gate.wait()
            with pytest.raises(TimeoutError):
                gated.engine.collective_rpc("profile_start", timeout=0.01, args=("late",))
            gated.gate.open()
            with pytest.raises(IndexError):
                gated.engine.profile(False)

    def test_profile(self, engine: DiffusionEngine) -> None:
        engine.profile(True, prefix="mine")
        assert engine.profile(False) == "mine"
        engine.profile(True)
        assert str(engine.profile(False)).startswith("diffusion_")

    def test_pause_and_resume(self, engine: DiffusionEngine) -> None:
        engine.pause()
        assert engine.stats().state == "paused"
        stream, gone = engine.submit(request("a")), engine.submit(request("b"))
        with pytest.raises(TimeoutError):
            stream.result(0.1)
        engine.abort("b")
        assert isinstance(gone.result(SOON_S), Aborted)
        engine.pause()
        engine.resume()
        completed(stream.result(SOON_S))
        assert engine.stats().state == "running"

    def test_pause_returns_when_the_device_is_idle(self) -> None:
        with Gated() as gated:
            stream = gated.engine.submit(request("a"))
            gated.gate.wait()
            threading.Timer(0.05, gated.gate.open).start()
            gated.engine.pause(SOON_S)
            assert isinstance(stream.result(0), Completed)

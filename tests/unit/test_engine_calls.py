"""Calls on the device thread: their order among batches and aborts, their deadlines, their way to an event loop."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Aborted, Completed, DiffusionEngine, DiffusionRequest, EngineClosed, EngineConfig, SamplingParams
from engine.testing import FakeAdapter, StepGate

SOON_S = 20.0


def request(request_id: str) -> DiffusionRequest:
    params = SamplingParams(height=8, width=8, seed=0, num_inference_steps=2)
    return DiffusionRequest(request_id=request_id, prompt=request_id, params=params)


class Rig:
    """An engine of one row a batch that stands before each step; `held` is a call that lasts until `release`."""

    def __init__(self) -> None:
        self.gate = StepGate()
        self.adapter = FakeAdapter(sleep=self.gate)
        self.began, self.release = threading.Event(), threading.Event()
        self.adapter.extra_methods |= {"held": self._held, "raises": self._raises, "note": self._note}
        config = EngineConfig(model="fake:", warmup=False, admission_wait_ms=0, max_batch_rows=1)
        self.engine = DiffusionEngine.make_engine(config, adapter=self.adapter)
        self.notes: list[int] = []

    def _held(self) -> str:
        self.began.set()
        assert self.release.wait(SOON_S)
        return "done"

    def _raises(self, error: BaseException) -> None:
        raise error

    def _note(self) -> None:
        self.notes.append(len(self.adapter.calls))

    def running(self, request_id: str) -> Any:
        stream = self.engine.submit(request(request_id))
        self.gate.wait()
        return stream


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.release.set()
    made.gate.open()
    made.engine.close()


def test_after_a_batch_come_aborts_then_calls_then_the_next_batch(rig: Rig) -> None:
    first = rig.running("a")
    gone, kept = rig.engine.submit(request("b")), rig.engine.submit(request("c"))
    caller = threading.Thread(target=rig.engine.collective_rpc, args=("note",))
    caller.start()
    rig.engine.abort("b")
    while rig.engine._inbox._queue.qsize() < 4:
        time.sleep(0.001)
    rig.gate.open()
    caller.join(SOON_S)
    assert rig.notes == [1]
    assert [type(stream.result(SOON_S)) for stream in (first, gone, kept)] == [Completed, Aborted, Completed]
    assert [call.rows[0][0] for call in rig.adapter.calls] == ["a", "c"]


def test_calls_of_two_threads_never_overlap(rig: Rig) -> None:
    inside, worst = [0], [0]

    def enter() -> None:
        inside[0] += 1
        worst[0] = max(worst[0], inside[0])
        time.sleep(0.001)
        inside[0] -= 1

    rig.adapter.extra_methods["enter"] = enter
    threads = [threading.Thread(target=rig.engine.collective_rpc, args=("enter",)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON_S)
    assert worst == [1]


def test_a_call_that_is_too_slow_says_so_and_the_engine_goes_on(rig: Rig) -> None:
    with pytest.raises(TimeoutError, match=r"held: 0.05 s passed during execution"):
        rig.engine.collective_rpc("held", timeout=0.05)
    rig.release.set()
    assert rig.engine.collective_rpc("held", timeout=SOON_S) == "done"


@pytest.mark.parametrize("error", [TimeoutError("its own"), SystemExit(3), KeyboardInterrupt("its own")])
def test_whatever_a_method_raises_reaches_its_caller_and_not_the_engine(rig: Rig, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        rig.engine.collective_rpc("raises", timeout=SOON_S, args=(error,))
    assert caught.value is error
    assert rig.engine.collective_rpc("echo") == ((), {})
    assert rig.engine.stats().state == "running"


class TestFromAnEventLoop:
    def test_it_turns_while_a_call_waits(self, rig: Rig) -> None:
        async def run() -> tuple[object, int]:
            task = asyncio.create_task(rig.engine.async_collective_rpc("held"))
            ticks = 0
            while not rig.began.is_set() or ticks < 10:
                ticks += 1
                await asyncio.sleep(0.001)
            rig.release.set()
            return await task, ticks

        answer, ticks = asyncio.run(run())
        assert (answer, ticks >= 10) == ("done", True)

    def test_arguments_and_errors(self, rig: Rig) -> None:
        rpc = rig.engine.async_collective_rpc
        assert asyncio.run(rpc("echo", args=(1,), kwargs={"x": 2})) == ((1,), {"x": 2})
        with pytest.raises(ValueError, match="unknown method 'nope'"):
            asyncio.run(rpc("nope"))
        with pytest.raises(TimeoutError, match=r"^its own$"):
            asyncio.run(rpc("raises", timeout=SOON_S, args=(TimeoutError("its own"),)))

    def test_a_deadline_passes_in_the_queue_or_in_the_call(self, rig: Rig) -> None:
        stream = rig.running("a")
        with pytest.raises(TimeoutError, match=r"note: 0.05 s passed before execution"):
            asyncio.run(rig.engine.async_collective_rpc("note", timeout=0.05))
        rig.gate.open()
        stream.result(SOON_S)
        with pytest.raises(TimeoutError, match=r"held: 0.05 s passed during execution"):
            asyncio.run(rig.engine.async_collective_rpc("held", timeout=0.05))
        rig.release.set()
        rig.engine.collective_rpc("echo")
        assert rig.notes == []

    def test_a_cancelled_call_that_has_not_begun_never_will(self, rig: Rig) -> None:
        async def run() -> None:
            task = asyncio.create_task(rig.engine.async_collective_rpc("note"))
            await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        stream = rig.running("a")
        asyncio.run(run())
        rig.gate.open()
        stream.result(SOON_S)
        rig.engine.collective_rpc("echo")
        assert rig.notes == []

    def test_a_closed_engine_says_so(self, rig: Rig) -> None:
        rig.gate.open()
        rig.engine.close()
        with pytest.raises(EngineClosed):
            asyncio.run(rig.engine.async_collective_rpc("echo"))

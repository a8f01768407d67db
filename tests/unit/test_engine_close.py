"""Closing: every stream and every call ends, whoever closes and whenever."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from engine import (
    Completed,
    DiffusionEngine,
    EngineClosed,
    Failed,
    QueueFull,
)
from engine.testing import FakeAdapter, StepGate
from tests.unit.engines import SOON_S, Gated, config, request


@pytest.fixture
def engine() -> Iterator[DiffusionEngine]:
    with DiffusionEngine.make_engine(config()) as made:
        yield made


class TestClose:
    def test_calls_after_close(self) -> None:
        engine = DiffusionEngine.make_engine(config())
        engine.close()
        engine.close()
        engine.abort("a")
        for call in (
            lambda: engine.submit(request("a")),
            lambda: engine.collective_rpc("echo"),
            engine.pause,
            engine.resume,
            lambda: engine.profile(True),
        ):
            start = time.monotonic()
            with pytest.raises(EngineClosed):
                call()
            assert time.monotonic() - start < 2
        assert engine.stats().state == "closed"

    def test_every_stream_ends_and_the_thread_is_gone(self) -> None:
        gate = StepGate()
        adapter = FakeAdapter(sleep=gate)
        engine = DiffusionEngine.make_engine(config(max_batch_rows=1), adapter=adapter)
        streams = [engine.submit(request(name)) for name in "abc"]
        gate.wait()
        threading.Timer(0.05, gate.open).start()
        engine.close()
        for stream in streams:
            event = stream.result(0)
            assert isinstance(event, Failed)
            assert (event.error_type, event.retryable) == ("internal", True)
        assert adapter.closed
        assert not any(thread.name == "safelight-device" for thread in threading.enumerate())

    def test_a_step_that_hangs_holds_up_neither_streams_nor_close_and_teardown_follows(self) -> None:
        gate = StepGate()
        adapter = FakeAdapter(sleep=gate)
        engine = DiffusionEngine.make_engine(config(admission_wait_ms=0), adapter=adapter)
        stream = engine.submit(request("a"))
        gate.wait()
        engine.close(timeout_s=0.05)
        assert isinstance(stream.result(0), Failed)
        assert not adapter.closed
        gate.open()
        for _ in range(100):
            if engine.stats().state == "closed":
                break
            time.sleep(0.02)
        assert adapter.closed

    def test_waiting_calls_end(self) -> None:
        with Gated() as gated:
            gated.engine.submit(request("a"))
            gated.gate.wait()
            errors: list[BaseException] = []

            def call() -> None:
                try:
                    gated.engine.collective_rpc("echo")
                except BaseException as error:
                    errors.append(error)

            thread = threading.Thread(target=call)
            thread.start()
            time.sleep(0.05)
            threading.Timer(0.05, gated.gate.open).start()
            gated.engine.close()
            thread.join(SOON_S)
            assert [type(error) for error in errors] == [EngineClosed]

    def test_from_many_threads(self) -> None:
        engine = DiffusionEngine.make_engine(config())
        threads = [threading.Thread(target=engine.close) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON_S)
        assert engine.stats().state == "closed"

    def test_from_the_device_thread(self) -> None:
        adapter = FakeAdapter()
        engine = DiffusionEngine.make_engine(config(), adapter=adapter)
        adapter.extra_methods["close_engine"] = engine.close
        engine.collective_rpc("close_engine", timeout=SOON_S)
        engine.close()
        assert adapter.closed

    def test_submits_racing_with_close_all_end(self) -> None:
        for _ in range(20):
            engine = DiffusionEngine.make_engine(config(admission_wait_ms=0))
            streams: list[Any] = []

            def run(engine: DiffusionEngine = engine, streams: list[Any] = streams) -> None:
                wanted = (request(f"r{i}", num_inference_steps=1) for i in range(1000))
                with suppress(EngineClosed, QueueFull):
                    streams.extend(map(engine.submit, wanted))

            thread = threading.Thread(target=run)
            thread.start()
            time.sleep(0.005)
            engine.close()
            thread.join(SOON_S)
            for stream in streams:
                assert isinstance(stream.result(SOON_S), Completed | Failed)

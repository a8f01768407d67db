"""DiffusionEngine on a model of arithmetic: what a caller sees, from any thread, in any state."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
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
    OutputStream,
    Preview,
    Progress,
    QueueFull,
    SamplingParams,
    Started,
)
from engine.testing import FakeAdapter, FakeSpec, StepGate

REQUEST_FIELDS = {"prompt", "priority", "solo", "deadline_s"}
SOON_S = 20.0


def request(request_id: str, **changes: Any) -> DiffusionRequest:
    top = {name: value for name, value in changes.items() if name in REQUEST_FIELDS}
    rest = {name: value for name, value in changes.items() if name not in REQUEST_FIELDS}
    params = SamplingParams(**{"height": 8, "width": 8, "seed": 0, "num_inference_steps": 4, **rest})
    return DiffusionRequest(**{"request_id": request_id, "prompt": request_id, "params": params, **top})


def config(**changes: Any) -> EngineConfig:
    return EngineConfig(**{"model": "fake:", "warmup": False, "admission_wait_ms": 20, **changes})


def completed(event: Event) -> Completed:
    assert isinstance(event, Completed), event
    return event


def solo_pixels(wanted: DiffusionRequest) -> list[np.ndarray]:
    with DiffusionEngine.make_engine(config()) as engine:
        return [media.pixels for media in completed(engine.submit(wanted).result(SOON_S)).media]


def submit_together(engine: DiffusionEngine, *requests: DiffusionRequest) -> list[OutputStream]:
    """Under a pause, so that the scheduler sees them all at once however slow this machine is."""
    engine.pause()
    streams = [engine.submit(one) for one in requests]
    engine.resume()
    return streams


@pytest.fixture
def engine() -> Iterator[DiffusionEngine]:
    with DiffusionEngine.make_engine(config()) as made:
        yield made


class Gated:
    """An engine whose device thread stands still in front of each step until it is let through."""

    def __init__(self, spec: FakeSpec | None = None, **changes: Any) -> None:
        self.gate = StepGate()
        self.adapter = FakeAdapter(spec, sleep=self.gate)
        self.engine = DiffusionEngine.make_engine(config(**{"admission_wait_ms": 0, **changes}), adapter=self.adapter)

    def __enter__(self) -> "Gated":
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.open()
        self.engine.close()


class TestLife:
    def test_events_in_order(self, engine: DiffusionEngine) -> None:
        events = list(engine.submit(request("a")))
        assert events[0] == Started("a", 1)
        steps = [(e.stage, e.step, e.num_steps) for e in events if isinstance(e, Progress)]
        assert steps[0] == ("encoding", 0, 4)
        assert [s for s in steps if s[0] == "denoising" and s[1]] == [("denoising", k, 4) for k in (1, 2, 3, 4)]
        assert steps[-1] == ("decoding", 4, 4)
        assert isinstance(events[-1], Completed)
        assert sum(isinstance(e, Completed | Aborted | Failed) for e in events) == 1

    def test_picture_and_metrics(self, engine: DiffusionEngine) -> None:
        done = completed(engine.submit(request("a", height=16, width=24, seed=5)).result(SOON_S))
        (media,) = done.media
        assert media.pixels.shape == (16, 24, 3)
        assert media.pixels.dtype == np.uint8
        assert media.seed == 5
        m = done.metrics
        assert m.total_ms >= m.queue_ms + m.encode_ms + m.denoise_ms + m.decode_ms - 1
        assert min(m.queue_ms, m.encode_ms, m.denoise_ms, m.decode_ms, m.device_seconds) >= 0
        assert m.batch_rows_mean == 1.0

    def test_batched_rows_equal_solo_rows(self, engine: DiffusionEngine) -> None:
        wanted = [request(f"r{i}", seed=i) for i in range(5)]
        streams = submit_together(engine, *wanted)
        batched = [completed(stream.result(SOON_S)) for stream in streams]
        assert all(done.metrics.batch_rows_mean == 5.0 for done in batched)
        for one, done in zip(wanted, batched, strict=True):
            assert np.array_equal(done.media[0].pixels, solo_pixels(one)[0])

    def test_more_outputs_than_a_batch_has_rows(self) -> None:
        with DiffusionEngine.make_engine(config(max_batch_rows=8)) as engine:
            stream = engine.submit(request("a", num_outputs=16, seed=100))
            events = list(stream)
            done = completed(events[-1])
            assert [media.seed for media in done.media] == list(range(100, 116))
            assert len({media.pixels.tobytes() for media in done.media}) == 16
            assert done.metrics.batch_rows_mean == 8.0
            steps = [e.step for e in events if isinstance(e, Progress)]
            assert steps == sorted(steps)
            assert {e.num_steps for e in events if isinstance(e, Progress)} == {8}
            assert steps[-1] == 8

    def test_output_k_replays_alone_from_its_seed(self, engine: DiffusionEngine) -> None:
        done = completed(engine.submit(request("a", num_outputs=3, seed=7)).result(SOON_S))
        again = completed(engine.submit(request("a", seed=done.media[2].seed)).result(SOON_S))
        assert np.array_equal(done.media[2].pixels, again.media[0].pixels)

    def test_device_seconds_are_shared_by_rows(self) -> None:
        with DiffusionEngine.make_engine(config(model="fake:step_ms=10")) as engine:
            one, three = submit_together(engine, request("a"), request("b", num_outputs=3))
            shares = [completed(s.result(SOON_S)).metrics.device_seconds for s in (one, three)]
            assert shares[1] == pytest.approx(3 * shares[0])
            assert sum(shares) >= 0.04

    def test_previews_come_every_n_steps(self, engine: DiffusionEngine) -> None:
        events = list(engine.submit(request("a", preview_every=2)))
        previews = [e for e in events if isinstance(e, Preview)]
        assert [p.step for p in previews] == [2, 4]
        assert previews[0].image.size == (8, 8)
        assert not any(isinstance(e, Preview) for e in engine.submit(request("b")))

    def test_truncation_is_told(self, engine: DiffusionEngine) -> None:
        done = completed(engine.submit(request("a", prompt="word " * 100)).result(SOON_S))
        assert done.warnings == ("prompt truncated at token 75",)

    def test_stats(self, engine: DiffusionEngine) -> None:
        for stream in submit_together(engine, *(request(f"r{i}") for i in range(4))):
            stream.result(SOON_S)
        stats = engine.stats()
        assert (stats.batches, stats.rows_done, stats.mean_batch_rows, stats.waiting_rows) == (1, 4, 4.0, 0)
        assert (stats.device, stats.dtype, stats.model, stats.state) == ("cpu", "float32", "fake:", "running")
        assert stats.step_ms is not None

    def test_device_thread_runs_everything(self, engine: DiffusionEngine) -> None:
        names = {engine.collective_rpc("thread") for _ in range(2)}
        assert names == {"safelight-device"}


class TestSubmit:
    def test_an_active_id_is_refused_and_a_finished_one_is_free(self) -> None:
        with Gated() as gated:
            stream = gated.engine.submit(request("a"))
            with pytest.raises(ValueError, match="a is active already"):
                gated.engine.submit(request("a"))
            gated.gate.open()
            completed(stream.result(SOON_S))
            completed(gated.engine.submit(request("a")).result(SOON_S))

    def test_too_many_waiting(self) -> None:
        with Gated(max_waiting=2) as gated:
            streams = [gated.engine.submit(request("running"))]
            gated.gate.wait()
            streams += [gated.engine.submit(request(name)) for name in "ab"]
            with pytest.raises(QueueFull):
                gated.engine.submit(request("c"))
            gated.gate.open()
            for stream in streams:
                completed(stream.result(SOON_S))
            completed(gated.engine.submit(request("c")).result(SOON_S))

    @pytest.mark.parametrize("changes", [{"height": 12}])
    def test_what_the_model_cannot_run_fails_before_any_batch(
        self, engine: DiffusionEngine, changes: dict[str, Any]
    ) -> None:
        (event,) = list(engine.submit(request("a", **changes)))
        assert isinstance(event, Failed)
        assert (event.error_type, event.retryable) == ("invalid_request", False)
        assert "multiples of 8" in event.message
        assert engine.stats().batches == 0

    def test_submit_does_not_block_while_a_batch_runs(self) -> None:
        with Gated() as gated:
            gated.engine.submit(request("a"))
            gated.gate.wait()
            start = time.monotonic()
            gated.engine.submit(request("b"))
            assert time.monotonic() - start < 2

    def test_fifty_threads_at_once(self, engine: DiffusionEngine) -> None:
        results: list[Event] = []

        def run(i: int) -> None:
            results.append(engine.submit(request(f"r{i}", seed=i)).result(SOON_S))

        threads = [threading.Thread(target=run, args=(i,)) for i in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {completed(e).request_id for e in results} == {f"r{i}" for i in range(50)}


class TestAbort:
    def test_a_waiting_request_ends_while_another_runs(self) -> None:
        """The seed leaves its stream open until the next request comes."""
        with Gated(max_batch_rows=1) as gated:
            running = gated.engine.submit(request("a"))
            gated.gate.wait()
            waiting = gated.engine.submit(request("b"))
            gated.engine.abort("b")
            gated.gate.let(1)
            assert waiting.result(SOON_S) == Aborted("b", None)
            assert not running.done
            gated.gate.open()
            completed(running.result(SOON_S))

    def test_a_waiting_request_ends_at_once_on_an_idle_device(self) -> None:
        with DiffusionEngine.make_engine(config()) as engine:
            engine.pause()
            stream = engine.submit(request("a"))
            start = time.monotonic()
            engine.abort("a")
            assert stream.result(SOON_S) == Aborted("a", None)
            assert time.monotonic() - start < 1

    def test_a_running_row_leaves_at_the_next_step_and_its_mates_do_not_notice(self) -> None:
        wanted = [request(f"r{i}", seed=i, num_inference_steps=6) for i in range(4)]
        with Gated(max_batch_rows=4) as gated:
            streams = submit_together(gated.engine, *wanted)
            gated.gate.wait()
            gated.gate.let(2)
            gated.gate.wait()
            gated.gate.wait()
            gated.engine.abort("r1")
            gated.gate.let(1)
            assert streams[1].result(SOON_S) == Aborted("r1", 2)
            gated.gate.open()
            for i in (0, 2, 3):
                pixels = completed(streams[i].result(SOON_S)).media[0].pixels
                assert np.array_equal(pixels, solo_pixels(wanted[i])[0])
            assert gated.adapter.calls[0].steps == [1, 2, 3, 4, 5, 6]

    def test_a_batch_that_nobody_waits_for_stops_without_decoding(self) -> None:
        with Gated() as gated:
            stream = gated.engine.submit(request("a"))
            gated.gate.wait()
            gated.engine.abort(["a"])
            gated.gate.let(1)
            assert stream.result(SOON_S) == Aborted("a", 0)
            gated.gate.open()
            completed(gated.engine.submit(request("b")).result(SOON_S))
            assert gated.adapter.calls[0].steps == [1]

    def test_an_abort_of_a_waiting_request_does_not_touch_the_running_one(self) -> None:
        wanted = request("r", num_inference_steps=20)
        with Gated(max_batch_rows=1) as gated:
            running = gated.engine.submit(wanted)
            gated.gate.wait()
            others = [gated.engine.submit(request(name)) for name in "abcd"]
            gated.engine.abort("c")
            gated.gate.open()
            events = list(running)
            assert max(e.step for e in events if isinstance(e, Progress)) == 20
            assert np.array_equal(completed(events[-1]).media[0].pixels, solo_pixels(wanted)[0])
            assert [type(s.result(SOON_S)) for s in others] == [Completed, Completed, Aborted, Completed]

    def test_unknown_finished_and_repeated_ids_mean_nothing(self, engine: DiffusionEngine) -> None:
        completed(engine.submit(request("a")).result(SOON_S))
        for ids in ("nobody", "a", ["a", "a", ""], []):
            engine.abort(ids)
        completed(engine.submit(request("a")).result(SOON_S))

    def test_an_abort_never_reaches_a_later_request(self) -> None:
        with DiffusionEngine.make_engine(config(admission_wait_ms=0)) as engine:
            for i in range(200):
                first, second = engine.submit(request("a", num_inference_steps=1)), engine.submit(request(f"b{i}"))
                engine.abort("a")
                assert isinstance(first.result(SOON_S), Completed | Aborted)
                completed(second.result(SOON_S))

    def test_leaving_the_stream_frees_the_device(self) -> None:
        with Gated() as gated:
            for event in gated.engine.submit(request("a", num_inference_steps=50)):
                if isinstance(event, Started):
                    break
            gated.gate.open()
            completed(gated.engine.submit(request("b")).result(SOON_S))
            assert len(gated.adapter.calls[0].steps) <= 2

    def test_closing_an_old_stream_spares_a_new_request_of_its_id(self) -> None:
        with Gated() as gated:
            old = gated.engine.submit(request("a"))
            gated.engine.abort("a")
            gated.gate.let(1)
            assert isinstance(old.result(SOON_S), Aborted)
            new = gated.engine.submit(request("a"))
            old.close()
            gated.gate.open()
            completed(new.result(SOON_S))

    def test_an_id_used_again_during_the_batch_gets_no_old_row(self) -> None:
        old, mate, new = request("a", seed=1), request("b", seed=2), request("a", seed=3)
        with Gated() as gated:
            first, second = submit_together(gated.engine, old, mate)
            gated.gate.wait()
            gated.engine.abort("a")
            gated.gate.let(1)
            assert isinstance(first.result(SOON_S), Aborted)
            again = gated.engine.submit(new)
            gated.gate.open()
            completed(second.result(SOON_S))
            media = completed(again.result(SOON_S)).media[0]
            assert media.seed == 3
            assert np.array_equal(media.pixels, solo_pixels(new)[0])

    def test_nothing_of_an_aborted_request_waits_on(self, engine: DiffusionEngine) -> None:
        engine.pause()
        streams = [engine.submit(request(name, num_outputs=3)) for name in "ab"]
        engine.abort("a")
        assert isinstance(streams[0].result(SOON_S), Aborted)
        engine.collective_rpc("echo")
        assert engine.stats().waiting_rows == 3
        engine.resume()
        completed(streams[1].result(SOON_S))

    def test_a_split_request_aborts_as_a_whole(self) -> None:
        with Gated(max_batch_rows=2) as gated:
            stream = gated.engine.submit(request("a", num_outputs=6))
            gated.gate.wait()
            gated.engine.abort("a")
            gated.gate.open()
            assert isinstance(stream.result(SOON_S), Aborted)
            completed(gated.engine.submit(request("b")).result(SOON_S))
            assert len(gated.adapter.calls) == 2


class TestDeadline:
    def test_passed_while_waiting(self) -> None:
        with Gated(max_batch_rows=1) as gated:
            gated.engine.submit(request("a"))
            gated.gate.wait()
            late = gated.engine.submit(request("b", deadline_s=0.01))
            time.sleep(0.02)
            gated.gate.let(1)
            event = late.result(SOON_S)
            assert isinstance(event, Failed)
            assert (event.error_type, event.retryable) == ("deadline_exceeded", False)

    def test_passed_on_an_idle_device(self) -> None:
        with DiffusionEngine.make_engine(config()) as engine:
            engine.pause()
            start = time.monotonic()
            event = engine.submit(request("a", deadline_s=0.05)).result(SOON_S)
            assert isinstance(event, Failed)
            assert event.error_type == "deadline_exceeded"
            assert 0.04 < time.monotonic() - start < 3

    def test_passed_in_mid_run_frees_the_device(self) -> None:
        with Gated() as gated:
            late = gated.engine.submit(request("a", deadline_s=0.02, num_inference_steps=50))
            gated.gate.wait()
            time.sleep(0.03)
            gated.gate.let(1)
            event = late.result(SOON_S)
            assert isinstance(event, Failed)
            assert event.error_type == "deadline_exceeded"
            gated.gate.open()
            completed(gated.engine.submit(request("b")).result(SOON_S))
            assert gated.adapter.calls[0].steps == [1]


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


class TestStart:
    def test_a_failing_load_closes_everything(self) -> None:
        adapter = FakeAdapter(FakeSpec(fail_load=True))
        with pytest.raises(RuntimeError, match="does not load"):
            DiffusionEngine.make_engine(config(), adapter=adapter)
        assert adapter.closed
        assert not any(thread.name == "safelight-device" for thread in threading.enumerate())

    def test_a_failing_warm_up_closes_everything(self) -> None:
        adapter = FakeAdapter(FakeSpec(nan_prompt="warm-up"))
        with pytest.raises(RuntimeError, match="failed its warm-up"):
            DiffusionEngine.make_engine(config(warmup=True), adapter=adapter)
        assert adapter.closed

    def test_warm_up_runs_once_at_the_models_own_size(self) -> None:
        adapter = FakeAdapter()
        with DiffusionEngine.make_engine(config(warmup=True), adapter=adapter) as engine:
            assert [call.rows for call in adapter.calls] == [(("warm-up", 0),)]
            assert engine.stats().batches == 0

    def test_a_fake_is_made_from_its_name(self) -> None:
        with DiffusionEngine.make_engine(config(model="fake:step_ms=1.5,nan_prompt=bad")) as engine:
            event = engine.submit(request("a", prompt="a bad one")).result(SOON_S)
            assert isinstance(event, Failed)
        for bad in ("fake:colour=3", "fake:step_ms=x"):
            with pytest.raises(ValueError, match="model"):
                DiffusionEngine.make_engine(config(model=bad))

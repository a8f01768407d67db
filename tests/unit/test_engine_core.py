"""DiffusionEngine on a model of arithmetic: from a start to pictures, and what is taken in between."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from engine import (
    Aborted,
    Completed,
    DiffusionEngine,
    Event,
    Failed,
    Preview,
    Progress,
    QueueFull,
    Started,
)
from engine.testing import FakeAdapter, FakeSpec
from tests.unit.engines import SOON_S, Gated, completed, config, request, solo_pixels, submit_together


@pytest.fixture
def engine() -> Iterator[DiffusionEngine]:
    with DiffusionEngine.make_engine(config()) as made:
        yield made


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

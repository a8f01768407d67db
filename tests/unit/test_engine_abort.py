"""Requests that end before they are done: aborted, left by their reader, or past their deadline."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from engine import (
    Aborted,
    Completed,
    DiffusionEngine,
    Failed,
    Progress,
    Started,
)
from tests.unit.engines import SOON_S, Gated, completed, config, request, solo_pixels, submit_together


@pytest.fixture
def engine() -> Iterator[DiffusionEngine]:
    with DiffusionEngine.make_engine(config()) as made:
        yield made


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

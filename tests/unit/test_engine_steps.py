"""Step mode on a model of arithmetic: rows join, share, leave, fail and are pushed aside, and none changes another."""

import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from engine import (
    Aborted,
    Completed,
    DiffusionEngine,
    DiffusionRequest,
    EngineConfig,
    Event,
    Failed,
    OutputStream,
    Preview,
    Progress,
    SamplingParams,
    Started,
)
from engine.testing import FakeAdapter, FakeRowCall, FakeSpec, StepGate

REQUEST_FIELDS = {"prompt", "priority", "solo", "deadline_s"}
SOON_S = 20.0


def request(request_id: str, **changes: Any) -> DiffusionRequest:
    top = {name: value for name, value in changes.items() if name in REQUEST_FIELDS}
    rest = {name: value for name, value in changes.items() if name not in REQUEST_FIELDS}
    params = SamplingParams(**{"height": 8, "width": 8, "seed": 0, "num_inference_steps": 4, **rest})
    return DiffusionRequest(**{"request_id": request_id, "prompt": request_id, "params": params, **top})


class Rig:
    """A step-mode engine over a fake; with a gate, its device thread stands before each denoise forward."""

    def __init__(self, spec: FakeSpec | None = None, *, gated: bool = False, **changes: Any) -> None:
        self.gate = StepGate()
        self.adapter = FakeAdapter(spec, sleep=self.gate if gated else lambda _: None, mode="step")
        config = EngineConfig(**{"model": "fake:", "mode": "step", "warmup": False, **changes})
        self.engine = DiffusionEngine.make_engine(config, adapter=self.adapter)

    def __enter__(self) -> "Rig":
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.open()
        self.engine.close()

    def submit(self, *requests: DiffusionRequest) -> list[OutputStream]:
        self.engine.pause()
        streams = [self.engine.submit(one) for one in requests]
        self.engine.resume()
        return streams

    def run(self, *requests: DiffusionRequest) -> list[Event]:
        return [stream.result(SOON_S) for stream in self.submit(*requests)]

    def shared(self, stage: str = "denoising") -> list[tuple[str, ...]]:
        """Who took part in each forward."""
        return [tuple(name for name, _ in forward.rows) for forward in self.adapter.forwards if forward.stage == stage]


def completed(event: Event) -> Completed:
    assert isinstance(event, Completed), event
    return event


def pixels(event: Event) -> list[np.ndarray]:
    return [media.pixels for media in completed(event).media]


def solo(wanted: DiffusionRequest) -> list[np.ndarray]:
    """What request mode makes of it alone."""
    with DiffusionEngine.make_engine(EngineConfig(model="fake:", warmup=False)) as engine:
        return pixels(engine.submit(wanted).result(SOON_S))


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as made:
        yield made


class TestSharing:
    def test_events_in_order(self, rig: Rig) -> None:
        events = list(rig.engine.submit(request("a")))
        assert events[0] == Started("a", 1)
        steps = [(e.stage, e.step) for e in events if isinstance(e, Progress)]
        assert steps == [("encoding", 0), *(("denoising", k) for k in range(5)), ("decoding", 4)]
        assert isinstance(events[-1], Completed)
        assert rig.engine.stats().mode == "step"

    def test_steps_guidance_seeds_and_schedulers_share_and_sizes_do_not(self, rig: Rig) -> None:
        wanted = [
            request("a", num_inference_steps=2),
            request("b", num_inference_steps=5, guidance_scale=7.0),
            request("c", num_inference_steps=3, noise_scheduler="euler", seed=9),
            request("d", height=16),
        ]
        for one, event in zip(wanted, rig.run(*wanted), strict=True):
            assert np.array_equal(pixels(event)[0], solo(one)[0])
        small = [members for members in rig.shared() if members != ("d",)]
        assert [len(members) for members in small] == [3, 3, 2, 1, 1]

    def test_a_row_joins_those_that_run(self) -> None:
        with Rig(gated=True) as rig:
            first = rig.engine.submit(request("a"))
            rig.gate.wait()
            second = rig.engine.submit(request("b"))
            rig.gate.open()
            for name, stream in (("a", first), ("b", second)):
                assert np.array_equal(pixels(stream.result(SOON_S))[0], solo(request(name))[0])
            assert rig.shared() == [("a",), ("a", "b"), ("a", "b"), ("a", "b"), ("b",)]

    def test_a_place_is_taken_at_the_next_step(self) -> None:
        with Rig(max_batch_rows=2) as rig:
            short = [request(name, num_inference_steps=1) for name in "abc"]
            rig.run(*short, request("d"), request("e"))  # four have a place
            turns = [set(members) for members in rig.shared()]
            assert turns[:2] == [{"a", "b"}, {"c", "d"}]
            assert {"d", "e"} in turns[2:]  # once e has read its prompt

    def test_outputs_are_rows_of_their_own(self, rig: Rig) -> None:
        wanted = request("a", num_outputs=3, seed=5)
        events = list(rig.engine.submit(wanted))
        assert [media.seed for media in completed(events[-1]).media] == [5, 6, 7]
        for got, alone in zip(pixels(events[-1]), solo(wanted), strict=True):
            assert np.array_equal(got, alone)
        assert rig.shared() == [("a",) * 3] * 4
        steps = [event.step for event in events if isinstance(event, Progress)]
        assert steps == sorted(steps)
        assert steps[-1] == 4

    def test_more_outputs_than_places(self) -> None:
        with Rig(max_batch_rows=2) as rig:
            wanted = request("a", num_outputs=5)
            (event,) = rig.run(wanted)
            for got, alone in zip(pixels(event), solo(wanted), strict=True):
                assert np.array_equal(got, alone)

    def test_exact_rows_never_share(self, rig: Rig) -> None:
        rig.run(request("a"), request("e", exact=True), request("b"))
        assert {members for members in rig.shared() if "e" in members} == {("e",)}
        assert ("a", "b") in rig.shared()

    def test_solo_rows_have_the_device_to_themselves(self, rig: Rig) -> None:
        rig.run(request("a"), request("s", solo=True), request("b"))
        assert rig.shared() == [("a",)] * 4 + [("s",)] * 4 + [("b",)] * 4

    def test_metrics(self, rig: Rig) -> None:
        one, other = (completed(event).metrics for event in rig.run(request("a"), request("b")))
        assert one.batch_rows_mean == other.batch_rows_mean == 2.0
        for m in (one, other):
            assert m.total_ms >= m.queue_ms + m.encode_ms + m.denoise_ms + m.decode_ms - 1
            assert 0 < m.device_seconds <= m.total_ms / 1000

    def test_previews(self, rig: Rig) -> None:
        events = list(rig.engine.submit(request("a", preview_every=2, num_outputs=2)))
        assert [event.step for event in events if isinstance(event, Preview)] == [2, 4]


class TestAbort:
    def test_a_running_row_leaves_at_the_next_step_and_frees_its_place(self) -> None:
        with Rig(gated=True, max_batch_rows=2) as rig:
            a, b, c = rig.submit(request("a"), request("b"), request("c"))
            rig.gate.wait()
            rig.engine.abort("a")
            rig.gate.open()
            assert a.result(SOON_S) == Aborted("a", 1)
            assert np.array_equal(pixels(b.result(SOON_S))[0], solo(request("b"))[0])
            assert np.array_equal(pixels(c.result(SOON_S))[0], solo(request("c"))[0])
            assert sum("a" in members for members in rig.shared()) == 1
            assert any(set(members) == {"b", "c"} for members in rig.shared())

    def test_a_waiting_one_ends_while_others_run(self) -> None:
        with Rig(gated=True, max_batch_rows=1) as rig:
            _, b = rig.submit(request("a"), request("b"))
            rig.gate.wait()
            rig.engine.abort("b")
            rig.gate.let()
            assert b.result(SOON_S) == Aborted("b", None)

    def test_every_output_of_a_request_goes(self) -> None:
        with Rig(gated=True) as rig:
            (a,) = rig.submit(request("a", num_outputs=3))
            rig.gate.wait()
            rig.engine.abort("a")
            rig.gate.open()
            assert isinstance(a.result(SOON_S), Aborted)
            completed(rig.engine.submit(request("b")).result(SOON_S))
            assert len([members for members in rig.shared() if "a" in members]) == 1

    def test_a_thousand_random_aborts_never_touch_a_mate(self) -> None:
        """Each aborted row is gone at the next boundary, and those that stay are equal to the last bit."""
        draw = random.Random(7)
        expected = {f"r{i}": solo(request(f"r{i}", seed=i, num_inference_steps=2 + i % 4))[0] for i in range(6)}
        num_aborted = 0
        with Rig(max_batch_rows=4) as rig:
            for _ in range(250):
                wanted = [request(f"r{i}", seed=i, num_inference_steps=2 + i % 4) for i in range(6)]
                doomed = set(draw.sample(range(6), 4))
                streams = rig.submit(*wanted)
                for index in doomed:
                    for _ in range(draw.randint(0, 6)):
                        streams[index].get(SOON_S)
                    rig.engine.abort(f"r{index}")
                    num_aborted += 1
                for index, stream in enumerate(streams):
                    end = stream.result(SOON_S)
                    if isinstance(end, Completed):
                        assert np.array_equal(pixels(end)[0], expected[f"r{index}"])
                    else:
                        assert isinstance(end, Aborted)
                        assert index in doomed
        assert num_aborted == 1000


class TestPreemption:
    def test_a_low_row_stands_aside_and_goes_on_without_losing_a_step(self) -> None:
        with Rig(gated=True, max_batch_rows=1) as rig:
            low = rig.engine.submit(request("low", priority=1))
            rig.gate.wait()
            high = rig.engine.submit(request("high", priority=9))
            rig.gate.open()
            assert np.array_equal(pixels(low.result(SOON_S))[0], solo(request("low"))[0])
            assert np.array_equal(pixels(high.result(SOON_S))[0], solo(request("high"))[0])
            assert rig.shared() == [("low",)] + [("high",)] * 4 + [("low",)] * 3


class TestFaults:
    def test_a_bad_row_fails_alone_and_its_mates_lose_no_step(self) -> None:
        with Rig(FakeSpec(fail_prompt="bad", fail_step=2)) as rig:
            wanted = [request("a"), request("x", prompt="bad"), request("c")]
            a, x, c = rig.run(*wanted)
            assert isinstance(x, Failed)
            assert "the fake model failed" in x.message
            assert x.traceback is not None
            assert np.array_equal(pixels(a)[0], solo(wanted[0])[0])
            assert np.array_equal(pixels(c)[0], solo(wanted[2])[0])
            assert rig.shared() == [("a", "x", "c"), ("a", "x", "c"), ("a",), ("x",), ("c",), ("a", "c"), ("a", "c")]

    def test_a_picture_that_is_not_finite_fails_its_own(self) -> None:
        with Rig(FakeSpec(nan_prompt="nan")) as rig:
            a, x = rig.run(request("a"), request("x", prompt="nan"))
            completed(a)
            assert isinstance(x, Failed)
            assert x.error_type == "model_error"

    def test_out_of_memory_halves_the_group_and_is_remembered(self) -> None:
        with Rig(FakeSpec(oom_above=2)) as rig:
            wanted = [request(name) for name in "abcd"]
            for one, event in zip(wanted, rig.run(*wanted), strict=True):
                assert np.array_equal(pixels(event)[0], solo(one)[0])
            assert [len(members) for members in rig.shared()] == [4] + [2] * 8
            rig.run(*(request(name) for name in "efgh"))
            assert max(len(members) for members in rig.shared()[9:]) == 2

    def test_one_row_that_does_not_fit_fails_and_the_next_runs(self) -> None:
        with Rig(FakeSpec(oom_above=0)) as rig:
            (event,) = rig.run(request("a"))
            assert isinstance(event, Failed)
            assert event.error_type == "out_of_memory"

    def test_a_lost_device_ends_every_request_retryable(self) -> None:
        with Rig(FakeSpec(lost_prompt="lost")) as rig:
            events = rig.run(request("a"), request("x", prompt="lost"), request("c"))
            assert all(isinstance(event, Failed) and event.retryable for event in events)
            rig.engine._thread.join(SOON_S)
            assert rig.engine.stats().state == "dead"
            assert rig.adapter.closed

    @pytest.mark.parametrize("where", ["open", "own code"])
    def test_a_device_lost_outside_a_forward_ends_the_engine_too(self, where: str) -> None:
        """Or else every later job would fail for good on a device that serves nobody."""

        class Lost(FakeAdapter):
            def open(self, *args: Any, **kwargs: Any) -> FakeRowCall:
                call = super().open(*args, **kwargs)
                self._lost = True
                if where == "open":
                    raise RuntimeError("an illegal access was met")
                call.fail(RuntimeError("an illegal access was met"))
                return call

        with Rig() as rig:
            rig.engine.close()
            rig.adapter = Lost(mode="step")
            config = EngineConfig(model="fake:", mode="step", warmup=False)
            rig.engine = DiffusionEngine.make_engine(config, adapter=rig.adapter)
            events = rig.run(request("a"), request("b"))
            assert [(event.error_type, event.retryable) for event in events if isinstance(event, Failed)] == [
                ("internal", True)
            ] * 2
            rig.engine._thread.join(SOON_S)
            assert rig.engine.stats().state == "dead"
            assert rig.adapter.closed

    def test_close_ends_the_calls_where_they_are_held(self) -> None:
        with Rig(gated=True) as rig:
            a, b = rig.submit(request("a"), request("b"))
            rig.gate.wait()
            rig.engine.close(timeout_s=0)
            assert all(isinstance(stream.result(SOON_S), Failed) for stream in (a, b))

    def test_a_deadline_frees_the_place(self) -> None:
        with Rig(gated=True, max_batch_rows=1) as rig:
            a, b = rig.submit(request("a", deadline_s=0.05), request("b"))
            rig.gate.wait()
            with pytest.raises(TimeoutError):
                a.result(0.1)
            rig.gate.open()
            end = a.result(SOON_S)
            assert isinstance(end, Failed)
            assert end.error_type == "deadline_exceeded"
            completed(b.result(SOON_S))


#: so many that no machine is through with them before the next line of a test
ENDLESS = 100_000


def test_a_pause_holds_rows_at_a_step(rig: Rig) -> None:
    stream = rig.engine.submit(request("a", num_inference_steps=ENDLESS))
    while not rig.shared():
        time.sleep(0.001)
    rig.engine.pause(SOON_S)
    num_forwards = len(rig.adapter.forwards)
    time.sleep(0.1)
    assert len(rig.adapter.forwards) == num_forwards
    rig.engine.resume()
    while len(rig.adapter.forwards) == num_forwards:
        time.sleep(0.001)
    stream.close()


def test_an_abort_at_a_pause_lets_the_call_go_at_once(rig: Rig) -> None:
    stream = rig.engine.submit(request("a", num_inference_steps=ENDLESS))
    while not rig.shared():
        time.sleep(0.001)
    rig.engine.pause(SOON_S)
    rig.engine.abort("a")
    assert isinstance(stream.result(SOON_S), Aborted)
    rig.engine.collective_rpc("echo", SOON_S)  # behind the abort in the inbox
    assert rig.engine._loop.runner._calls == {}  # type: ignore[union-attr]


def test_rows_that_end_as_they_open_keep_nobody_waiting() -> None:
    """Nothing else arrives that could wake the device thread."""
    with Rig(max_batch_rows=1) as rig:
        opened = rig.adapter.open

        def refusing(batch: Any, *args: Any, **options: Any) -> Any:
            if "bad" in batch.rows[0].request.prompt:
                raise ValueError("no")
            return opened(batch, *args, **options)

        rig.adapter.open = refusing  # type: ignore[method-assign]
        events = rig.run(request("a", prompt="bad"), request("b", prompt="bad"), request("c"), request("d", solo=True))
        assert [type(event) for event in events] == [Failed, Failed, Completed, Completed]

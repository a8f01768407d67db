"""One bad request fails alone: errors, out of memory, pictures that are not finite, a device that is gone."""

import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from engine import (
    Completed,
    DiffusionEngine,
    DiffusionRequest,
    EngineConfig,
    EngineDead,
    Event,
    Failed,
    SamplingParams,
)
from engine.testing import FakeAdapter, FakeSpec

SOON_S = 20.0


def request(request_id: str, prompt: str = "good", *, solo: bool = False, **changes: Any) -> DiffusionRequest:
    params = SamplingParams(**{"height": 8, "width": 8, "seed": 0, "num_inference_steps": 3, **changes})
    return DiffusionRequest(request_id=request_id, prompt=prompt, params=params, solo=solo)


class Rig:
    """An engine over a fake that misbehaves as told; `run` submits all at once and waits for all."""

    def __init__(self, **spec: Any) -> None:
        self.adapter = FakeAdapter(FakeSpec(**spec))
        config = EngineConfig(model="fake:", warmup=False, admission_wait_ms=20)
        self.engine = DiffusionEngine.make_engine(config, adapter=self.adapter)

    def __enter__(self) -> "Rig":
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def run(self, *requests: DiffusionRequest) -> list[Event]:
        self.engine.pause()
        streams = [self.engine.submit(one) for one in requests]
        self.engine.resume()
        return [stream.result(SOON_S) for stream in streams]

    @property
    def batches(self) -> list[int]:
        return [len(call.rows) for call in self.adapter.calls]


def kinds(events: list[Event]) -> list[str]:
    return [event.error_type if isinstance(event, Failed) else type(event).__name__ for event in events]


def test_a_bad_request_fails_alone_and_with_its_traceback() -> None:
    with Rig(fail_prompt="bad", fail_step=2) as rig:
        events = rig.run(request("a"), request("b", "bad"), request("c"), request("d"))
        assert kinds(events) == ["Completed", "model_error", "Completed", "Completed"]
        assert rig.batches == [4, 1, 1, 1, 1]
        failed = events[1]
        assert isinstance(failed, Failed)
        assert failed.message == "the fake model failed"
        assert failed.traceback is not None
        assert "_misbehave" in failed.traceback
        assert kinds(rig.run(request("e"))) == ["Completed"]


def test_a_bad_request_alone_is_not_run_twice() -> None:
    with Rig(fail_prompt="bad") as rig:
        assert kinds(rig.run(request("a", "bad", num_outputs=4))) == ["model_error"]
        assert rig.batches == [4]


def test_innocents_get_the_picture_that_they_get_alone() -> None:
    with Rig(fail_prompt="bad") as rig:
        batched, _ = rig.run(request("a", seed=3), request("b", "bad"))
        (alone,) = rig.run(request("a", seed=3))
        assert isinstance(batched, Completed)
        assert isinstance(alone, Completed)
        assert np.array_equal(batched.media[0].pixels, alone.media[0].pixels)


def test_a_picture_that_is_not_finite_fails_its_request_alone_without_another_run() -> None:
    with Rig(nan_prompt="bad") as rig:
        events = rig.run(request("a"), request("b", "bad", num_outputs=2), request("c"))
        assert kinds(events) == ["Completed", "model_error", "Completed"]
        assert rig.batches == [4]


class TestOutOfMemory:
    def test_the_batch_is_halved_and_the_bound_learned(self) -> None:
        with Rig(oom_above=2) as rig:
            assert kinds(rig.run(*(request(f"r{i}") for i in range(8)))) == ["Completed"] * 8
            assert rig.batches == [8, 4, 2, 2, 4, 2, 2]
            rig.adapter.calls.clear()
            assert kinds(rig.run(*(request(f"r{i}") for i in range(4)))) == ["Completed"] * 4
            assert rig.batches == [2, 2]

    def test_a_split_request_is_whole_again(self) -> None:
        with Rig(oom_above=1) as rig:
            (event,) = rig.run(request("a", num_outputs=5, seed=10))
            assert isinstance(event, Completed)
            assert [media.seed for media in event.media] == [10, 11, 12, 13, 14]
            assert event.metrics.batch_rows_mean == 1.0

    def test_one_row_that_does_not_fit_fails_and_the_next_job_runs(self) -> None:
        with Rig(oom_above=0) as rig:
            assert kinds(rig.run(request("a"))) == ["out_of_memory"]
            assert kinds(rig.run(request("a", num_outputs=4))) == ["out_of_memory"]
            object.__setattr__(rig.adapter.spec, "oom_above", 8)
            assert kinds(rig.run(request("b"))) == ["Completed"]

    def test_a_bad_request_inside_a_half_is_still_found(self) -> None:
        with Rig(oom_above=2, fail_prompt="bad") as rig:
            prompts = ["good", "bad", "good", "good"]
            events = rig.run(*(request(f"r{i}", prompt) for i, prompt in enumerate(prompts)))
            assert kinds(events) == ["Completed", "model_error", "Completed", "Completed"]


class TestQuarantine:
    def test_solo_and_exact_have_no_mates(self) -> None:
        with Rig() as rig:
            events = rig.run(
                request("a"), request("b", solo=True, num_outputs=2), request("c", exact=True, num_outputs=2)
            )
            assert kinds(events) == ["Completed"] * 3
            assert sorted(call.rows for call in rig.adapter.calls) == [
                (("a", 0),),
                (("b", 0), ("b", 1)),
                (("c", 0),),
                (("c", 1),),
            ]


class TestDeath:
    def test_a_lost_device_ends_the_engine_and_every_request_retryable(self) -> None:
        with Rig(lost_prompt="bad") as rig:
            events = rig.run(request("a", "bad"), request("b", num_inference_steps=9))
            assert kinds(events) == ["internal", "internal"]
            assert all(isinstance(event, Failed) and event.retryable for event in events)
            assert "the fake device is gone" in str(events[0])
            deadline = time.monotonic() + SOON_S
            while rig.engine.stats().state != "dead" and time.monotonic() < deadline:
                time.sleep(0.01)
            assert rig.engine.stats().state == "dead"
            for call in (lambda: rig.engine.submit(request("c")), lambda: rig.engine.collective_rpc("echo")):
                with pytest.raises(EngineDead, match="the fake device is gone"):
                    call()
            assert rig.adapter.closed

    def test_a_killer_takes_the_process(self) -> None:
        code = (
            "from engine import *\n"
            "e = DiffusionEngine.make_engine(EngineConfig(model='fake:kill_prompt=boom'))\n"
            "p = SamplingParams(height=8, width=8, seed=0)\n"
            "e.submit(DiffusionRequest(request_id='a', prompt='boom', params=p)).result(5)\n"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == -9

    def test_a_forgotten_engine_does_not_keep_the_interpreter(self) -> None:
        code = (
            "from engine import *\n"
            "e = DiffusionEngine.make_engine(EngineConfig(model='fake:step_ms=20'))\n"
            "p = SamplingParams(height=8, width=8, seed=0, num_inference_steps=1000)\n"
            "s = e.submit(DiffusionRequest(request_id='a', prompt='x', params=p))\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=20)
        assert (done.returncode, done.stderr) == (0, "")

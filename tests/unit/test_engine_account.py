"""What a request took is told however it ends, and the engine says what it is busy with."""

from __future__ import annotations

import pytest

from engine import Aborted, Completed, DiffusionEngine, DiffusionRequest, EngineConfig, Failed, SamplingParams
from engine.device_memory import device_memory
from engine.stats import STEP_MS_SMOOTHING, Counters
from engine.testing import FakeAdapter, FakeSpec, StepGate

SOON_S = 20.0


def request(request_id: str, prompt: str = "a boat", **params: object) -> DiffusionRequest:
    given = {"height": 16, "width": 16, "num_inference_steps": 6, "seed": 1, **params}
    return DiffusionRequest(request_id=request_id, prompt=prompt, params=SamplingParams(**given))  # type: ignore[arg-type]


def engine(mode: str, gate: StepGate | None = None, **spec: object) -> DiffusionEngine:
    adapter = FakeAdapter(FakeSpec(**spec), gate or (lambda seconds: None), mode=mode)  # type: ignore[arg-type]
    config = EngineConfig(model="fake:", mode=mode, warmup=False, max_batch_rows=4, admission_wait_ms=50)  # type: ignore[arg-type]
    return DiffusionEngine.make_engine(config, adapter=adapter)


@pytest.mark.parametrize("mode", ["request", "step"])
def test_an_aborted_request_knows_what_it_took(mode: str) -> None:
    gate = StepGate()
    with engine(mode, gate) as running:
        streams = [running.submit(request(name)) for name in ("a", "b")]
        for _ in range(3):
            gate.wait()
            gate.let()
        running.abort("a")
        gate.open()
        gone, done = (stream.result(SOON_S) for stream in streams)
        assert isinstance(gone, Aborted) and isinstance(done, Completed)
        assert gone.metrics is not None
        assert 0 < gone.metrics.denoise_ms <= gone.metrics.total_ms
        assert 0 < gone.metrics.device_seconds < done.metrics.device_seconds + gone.metrics.device_seconds
        assert gone.metrics.batch_rows_max >= 1
        assert running.submit(request("c")).result(SOON_S) is not None
        running.pause()
        waiting = running.submit(request("d"))
        running.abort("d")
        never = waiting.result(SOON_S)
        assert isinstance(never, Aborted) and never.metrics is None, "it never ran"


@pytest.mark.parametrize("mode", ["request", "step"])
def test_a_failed_request_knows_what_it_took(mode: str) -> None:
    with engine(mode, fail_prompt="broken", fail_step=3) as running:
        end = running.submit(request("a", "a broken cup")).result(SOON_S)
        assert isinstance(end, Failed) and end.metrics is not None
        assert end.metrics.device_seconds > 0
        assert end.metrics.batch_rows_mean == 1


@pytest.mark.parametrize("mode", ["request", "step"])
def test_who_shared_a_batch_with_it_is_told_eight_of_them_at_the_most(mode: str) -> None:
    with engine(mode) as running:
        running.pause()
        streams = [running.submit(request(name, num_outputs=2)) for name in ("a", "b")]
        streams += [running.submit(request("other", width=24)), running.submit(request("exact", exact=True))]
        running.resume()
        ends = [stream.result(SOON_S) for stream in streams]
        assert [end.metrics.mates for end in ends] == [("b",), ("a",), (), ()]  # type: ignore[union-attr]


def test_no_more_than_eight_mates_are_named() -> None:
    gate = StepGate()
    with engine("step", gate) as running:
        stream = running.submit(request("long", num_inference_steps=2000))
        for number in range(10):
            gate.wait()
            short = running.submit(request(f"short {number}", num_inference_steps=2))
            while not short.done:
                gate.let()
        gate.open()
        end = stream.result(SOON_S)
        assert isinstance(end, Completed)
        assert end.metrics.mates == tuple(f"short {number}" for number in range(8))


@pytest.mark.parametrize(
    ("mode", "other", "apart"),
    [
        ("request", {"guidance_scale": 2.0, "num_inference_steps": 9}, ("num_inference_steps", "guidance_scale")),
        ("step", {"guidance_scale": 2.0, "num_inference_steps": 9}, ()),
        ("step", {"guidance_scale": 1.0, "width": 24}, ("width", "guided")),
    ],
)
def test_who_could_not_share_is_told_apart_by_name(mode: str, other: dict[str, object], apart: tuple[str, ...]) -> None:
    gate = StepGate()
    with engine(mode, gate) as running:
        running.pause()
        first = running.submit(request("a"))
        second = running.submit(request("b", **other))
        running.resume()
        gate.wait()
        groups = running.running_groups()
        assert groups[0].key["height"] == 16
        assert sum(group.rows for group in groups) == (1 if mode == "request" else 2)
        gate.open()
        ends = [stream.result(SOON_S) for stream in (first, second)]
        assert all(isinstance(end, Completed) for end in ends)
        assert ends[0].metrics.apart == apart  # type: ignore[union-attr]
        assert running.submit(request("c")).result(SOON_S).metrics.apart == ()  # type: ignore[union-attr]


def test_counters_fill_buckets_and_averages() -> None:
    counters = Counters()
    for rows, ms in ((1, 1.0), (3, 40.0), (200, 60_000.0)):
        counters.batch_started(rows)
        counters.step_done(ms)
    assert [i for i, count in enumerate(counters.rows_counts) if count] == [0, 2, 8]
    assert [i for i, count in enumerate(counters.step_counts) if count] == [0, 5, 14]
    assert counters.step_seconds == pytest.approx(60.041)
    after_two = 1 + STEP_MS_SMOOTHING * 2
    assert counters.step_rows == pytest.approx(after_two + STEP_MS_SMOOTHING * (200 - after_two))


def test_memory_is_that_of_a_device_that_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    assert device_memory("cpu") is None
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3, 10))
    memory = device_memory("cuda:0")
    assert memory is not None and (memory.used_bytes, memory.free_bytes) == (7, 3)

    def broken(device: str) -> tuple[int, int]:
        raise RuntimeError("an illegal access was met")

    monkeypatch.setattr(torch.cuda, "mem_get_info", broken)
    assert device_memory("cuda:0") is None

"""A pipeline call that fails, and requests that none is made for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from engine import (
    Failed,
    Progress,
)
from engine.batch import Batch
from engine.errors import BatchAborted, InvalidRequest
from engine.request import Row
from tests.contract.random_models import picture
from tests.contract.whole_models import STEPS, Model, completed, request

pytestmark = pytest.mark.usefixtures("one_thread")


class TestFaults:
    """Faults put into the real UNet: the engine's answers are the same as on the fake."""

    @pytest.fixture
    def faulty(self, sd: Model, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], list[int]]:
        unet = sd.adapter._pipeline("text2image").pipeline.unet
        forward = unet.forward

        def install(fault: Callable[[int, Any], Any]) -> list[int]:
            calls: list[int] = []

            def broken(sample: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
                calls.append(len(sample))
                return fault(len(sample), forward(sample, *args, **kwargs))

            monkeypatch.setattr(unet, "forward", broken)
            return calls

        return install

    def test_a_row_that_is_not_finite_fails_alone(self, sd: Model, faulty: Any) -> None:
        def poison(rows: int, out: Any) -> Any:
            noise = out[0].clone()
            noise[1::2] = float("nan")  # the second request, with and without guidance
            return (noise,)

        wanted = [request("a", seed=1), request("b", seed=2)]
        clean = sd.pixels(*wanted)
        faulty(poison)
        good, bad = sd.run(*wanted)
        assert np.array_equal(completed(good).media[0].pixels, clean[0])
        assert isinstance(bad, Failed)
        assert (bad.error_type, bad.retryable) == ("model_error", False)
        assert "not finite" in bad.message

    def test_out_of_memory_splits_and_is_remembered(self, sd: Model, faulty: Any) -> None:
        def full(rows: int, out: Any) -> Any:
            if rows > 4:  # two requests with guidance
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")
            return out

        calls = faulty(full)
        wanted = [request(f"r{i}", seed=i, height=40) for i in range(4)]
        events = sd.run(*wanted)
        assert [completed(event).metrics.batch_rows_mean for event in events] == [2.0] * 4
        assert calls == [8] + [4] * 2 * STEPS
        calls.clear()
        sd.run(*wanted)
        assert max(calls) == 4

    def test_one_row_out_of_memory(self, sd: Model, faulty: Any) -> None:
        def full(rows: int, out: Any) -> Any:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory")

        faulty(full)
        (event,) = sd.run(request("a", width=40))
        assert isinstance(event, Failed)
        assert event.error_type == "out_of_memory"

    def test_an_abort_stops_the_device_within_one_step(self, sd: Model, faulty: Any) -> None:
        calls = faulty(lambda rows, out: out)
        for event in sd.engine.submit(request("a", num_inference_steps=50)):
            if isinstance(event, Progress) and event.step == 3:
                break
        sd.pixels(request("b", num_inference_steps=1))
        assert len(calls) <= 3 + 2 + 1

    def test_a_step_hook_may_stop_the_call_anywhere_and_the_next_is_clean(self, sd: Model) -> None:
        wanted = request("a", num_inference_steps=4)
        clean = sd.pixels(wanted)[0]
        batch = Batch(sd.adapter.batch_key(wanted), (Row(wanted, 0),))
        for stop in range(7):
            seen: list[int] = []

            def hook(*_: Any, seen: list[int] = seen, stop: int = stop) -> None:
                seen.append(1)
                if len(seen) > stop:
                    raise BatchAborted

            with pytest.raises(BatchAborted):
                sd.adapter.run(batch, hook)
            assert len(seen) == stop + 1
        assert np.array_equal(sd.pixels(wanted)[0], clean)


class TestRefusals:
    @pytest.mark.parametrize("changes", [{"height": 33}, {"width": 31}])
    def test_sizes(self, model: Model, changes: dict[str, int]) -> None:
        with pytest.raises(InvalidRequest, match=f"{next(iter(changes))} .* must be a multiple of"):
            model.adapter.batch_key(request("a", **changes))

    def test_tasks(self, sd: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sd.adapter, "_tasks", {"text2image": sd.adapter._pipeline("text2image")})
        with pytest.raises(InvalidRequest, match="does not serve image2image; it serves: text2image"):
            sd.adapter.batch_key(request("a", image=picture()))

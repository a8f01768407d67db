"""A picture begun in one engine and finished in another is equal, to the last bit, to one drawn without a break."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine import Aborted, Checkpoint, DiffusionEngine, DiffusionRequest, EngineConfig
from engine.adapters.stepwise import StepPipeline
from tests.contract.random_models import PROMPTS, SOON_S, picture
from tests.contract.step_models import STEPS, Model, pixels, request

pytestmark = pytest.mark.usefixtures("one_thread")


def leave(model: Model, wanted: DiffusionRequest, num_steps: int) -> bytes:
    """Draw so many steps, then take the request out of the engine."""
    taken: list[bytes] = []
    advance = model.adapter._within_memory

    def watch() -> None:
        call = next(iter(model.engine._loop.runner._calls.values()), None)  # type: ignore[union-attr]
        state = None if call is None else call.state()
        if state is not None and state.step == num_steps and not taken:
            checkpoint = model.engine._loop.export(wanted.request_id)
            assert checkpoint is not None
            taken.append(checkpoint.to_bytes())

    def watched(num_rows: int, function: Callable[[], Any]) -> Any:
        if not taken:
            watch()
        return advance(num_rows, function)

    model.adapter._within_memory = watched  # type: ignore[method-assign]
    try:
        end = model.engine.submit(wanted).result(SOON_S)
        assert isinstance(end, Aborted), end
        model.engine.pause(SOON_S)  # the device thread is past its forward then
        model.engine.resume()
    finally:
        model.adapter._within_memory = advance  # type: ignore[method-assign]
    return taken[0]


def resumed(model: Model, wanted: DiffusionRequest, data: bytes) -> Any:
    """In an engine of its own, which asks the model for the missing steps only."""
    adapter = StepPipeline(EngineConfig(model=model.folder, num_threads=1, mode="step", warmup=False))
    with DiffusionEngine.make_engine(adapter._config, adapter=adapter) as other:
        num_forwards = 0
        advance = adapter.advance

        def counted(calls: Any) -> None:
            nonlocal num_forwards
            num_forwards += calls[0].stage == "denoising"
            advance(calls)

        adapter.advance = counted  # type: ignore[method-assign]
        again = DiffusionRequest(
            request_id="again",
            prompt=wanted.prompt,
            params=wanted.params,
            image=wanted.image,
            resume=Checkpoint.from_bytes(data),
        )
        return pixels(other.submit(again).result(SOON_S)), num_forwards


@pytest.mark.parametrize("family", ["stable_diffusion", "stable_diffusion_3", "flux"])
@pytest.mark.parametrize("num_steps", [1, STEPS - 1])
def test_each_family(models: Callable[[str], Model], family: str, num_steps: int) -> None:
    model = models(family)
    wanted = request("a", PROMPTS[1], seed=7, guidance_scale=5.0)
    picture, num_forwards = resumed(model, wanted, leave(model, wanted, num_steps))
    assert num_forwards == STEPS - num_steps
    assert np.array_equal(picture, model.pixels(request("b", PROMPTS[1], seed=7, guidance_scale=5.0))[0])


@pytest.mark.parametrize("name", ["euler", "euler_a", "dpmpp_2m", "unipc", "pndm", "heun", "ddpm"])
def test_each_noise_scheduler_remembers(models: Callable[[str], Model], name: str) -> None:
    """Solver histories and the state of the generator travel along."""
    model = models("stable_diffusion")
    wanted = request("a", seed=3, noise_scheduler=name, num_inference_steps=6)
    picture, _ = resumed(model, wanted, leave(model, wanted, 3))
    assert np.array_equal(picture, model.pixels(request("b", seed=3, noise_scheduler=name, num_inference_steps=6))[0])


def test_image_to_image(models: Callable[[str], Model]) -> None:
    model = models("stable_diffusion")
    fields: dict[str, Any] = {"image": picture(1), "strength": 0.8, "num_inference_steps": 8, "seed": 2}
    wanted = request("a", **fields)
    result, _ = resumed(model, wanted, leave(model, wanted, 3))
    assert np.array_equal(result, model.pixels(request("b", **fields))[0])

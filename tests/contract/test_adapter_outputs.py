"""Between a diffusers pipeline and the engine: which class is called, and what becomes of its output."""

from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
from diffusers.utils import BaseOutput

from engine import Completed, DiffusionEngine, DiffusionRequest, EngineConfig, Failed, SamplingParams, testing_pipelines
from engine.adapters import whole
from engine.adapters.loading import resolve_class
from engine.adapters.outputs import raw_rows
from engine.errors import ModelError

SD = diffusers.StableDiffusionPipeline
SOON_S = 60.0


class Made(BaseOutput):  # type: ignore[misc]
    """An output of a pipeline with whatever fields it is given."""


class OwnPipeline(SD):  # type: ignore[misc,valid-type]
    """A pipeline of an operator's own, which forgets the last picture of a batch if the first row is for b."""

    def __call__(self, prompt: Any = None, height: Any = None, width: Any = None, num_inference_steps: int = 50,
                 guidance_scale: float = 7.5, generator: Any = None, output_type: str = "pil") -> Any:  # fmt: skip
        result = super().__call__(
            prompt=prompt,
            height=height,
            width=width,
            num_inference_steps=num_inference_steps,
            guidance_scale=guidance_scale,
            generator=generator,
            output_type=output_type,
        )
        forgets = "forget" in prompt
        return Made(images=[None if forgets else image for image in result.images])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sd")
    testing_pipelines.stable_diffusion().save_pretrained(path)
    return path


def request(request_id: str, prompt: str = "good") -> DiffusionRequest:
    params = SamplingParams(height=32, width=32, seed=0, num_inference_steps=2)
    return DiffusionRequest(request_id=request_id, prompt=prompt, params=params)


def config(folder: Path, **changes: Any) -> EngineConfig:
    return EngineConfig(model=str(folder), mode="request", warmup=False, num_threads=1, **changes)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, diffusers.DiffusionPipeline),
        ("StableDiffusionPipeline", SD),
        (f"{__name__}.OwnPipeline", OwnPipeline),
        (OwnPipeline, OwnPipeline),
    ],
)
def test_a_pipeline_class_is_a_name_a_path_or_the_class_itself(wanted: str | type | None, found: type) -> None:
    assert resolve_class(wanted) is found


@pytest.mark.parametrize(("wanted", "error"), [("NoSuch", ValueError), ("no.Such", ValueError), (dict, TypeError)])
def test_anything_else_is_no_pipeline_class(wanted: str | type, error: type[Exception]) -> None:
    with pytest.raises(error, match="pipeline_class"):
        resolve_class(wanted)


@pytest.mark.parametrize("field", ["images", "frames", "audios"])
def test_rows_are_found_under_any_of_their_names(field: str) -> None:
    rows = np.zeros((2, 3))
    assert raw_rows(Made(**{field: rows})) is rows


@pytest.mark.parametrize("fields", [{}, {"latents": 1}, {"images": None}, {"images": [np.zeros(3), None]}])
def test_what_is_not_there_is_a_model_error(fields: dict[str, Any]) -> None:
    with pytest.raises(ModelError):
        raw_rows(Made(**fields))


def test_a_row_that_the_pipeline_forgets_fails_its_request_alone(folder: Path) -> None:
    with DiffusionEngine.make_engine(config(folder, pipeline_class=OwnPipeline, admission_wait_ms=500)) as engine:
        assert engine.capabilities.model_class == "OwnPipeline"
        streams = [engine.submit(request("a")), engine.submit(request("b", "forget"))]
        good, bad = (stream.result(SOON_S) for stream in streams)
    assert isinstance(good, Completed)
    assert isinstance(bad, Failed)
    assert (bad.error_type, bad.message) == ("model_error", "the images of a Made are not all there")


def test_what_becomes_media_is_on_the_host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[type] = []

    def media(raw: Any, *args: Any) -> Any:
        seen.append(type(raw))
        return made(raw, *args)

    made = whole.media
    monkeypatch.setattr(whole, "media", media)
    with DiffusionEngine.make_engine(config(folder)) as engine:
        done = engine.submit(request("a")).result(SOON_S)
    assert isinstance(done, Completed)
    assert seen == [np.ndarray]

"""Random pipelines of three families: each in an engine, and under plain diffusers."""

from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch

from engine import (
    Completed,
    DiffusionEngine,
    DiffusionRequest,
    EngineConfig,
    Event,
    testing_pipelines,
)
from engine.adapters.whole import WholePipeline
from tests.contract.random_models import PROMPTS, SOON_S, Pixels, request_of

#: with the tokens of a prompt that each reads: CLIP's own bound, or T5's, less two special tokens
FAMILIES = {"stable_diffusion": 30, "stable_diffusion_3": 254, "flux": 510}
STEPS = 3


def request(request_id: str, prompt: str = PROMPTS[0], **changes: Any) -> DiffusionRequest:
    return request_of(request_id, prompt, STEPS, **changes)


def completed(event: Event) -> Completed:
    assert isinstance(event, Completed), event
    return event


class Model:
    """One random pipeline in a folder, the engine that serves it, and the same folder under plain diffusers."""

    def __init__(self, family: str, folder: Path) -> None:
        getattr(testing_pipelines, family)().save_pretrained(folder)
        self.folder = str(folder)
        self.num_tokens = FAMILIES[family]
        self.plain = diffusers.DiffusionPipeline.from_pretrained(folder, dtype=torch.float32)
        self.plain.set_progress_bar_config(disable=True)
        config = EngineConfig(model=self.folder, num_threads=1, admission_wait_ms=0)
        self.adapter = WholePipeline(config)
        self.engine = DiffusionEngine.make_engine(config, adapter=self.adapter)

    def run(self, *requests: DiffusionRequest) -> list[Event]:
        """All at once, so that what can share a batch does."""
        self.engine.pause()
        streams = [self.engine.submit(one) for one in requests]
        self.engine.resume()
        return [stream.result(SOON_S) for stream in streams]

    def pixels(self, *requests: DiffusionRequest) -> list[Pixels]:
        """The first output of each."""
        return [completed(event).media[0].pixels for event in self.run(*requests)]

    def expected(self, wanted: DiffusionRequest, pipeline: Any = None, **changes: Any) -> Pixels:
        """What plain diffusers makes of a request of one output."""
        params = wanted.params
        arguments = {
            "prompt": wanted.prompt,
            "height": params.height,
            "width": params.width,
            "num_inference_steps": params.num_inference_steps,
            "guidance_scale": params.guidance_scale,
            "generator": torch.Generator("cpu").manual_seed(params.seed),
            **({"negative_prompt": params.negative_prompt} if params.negative_prompt is not None else {}),
            **changes,
        }
        return np.asarray((pipeline or self.plain)(**arguments).images[0])

    def close(self) -> None:
        self.engine.close()

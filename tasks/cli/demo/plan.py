"""What the demo asks for. Pure: a list of prompts in, 24 jobs and one wrong request out."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tasks.errors import ConfigError

NUM_JOBS = 24
#: Width and height; the first is what the bundled model was trained for.
SIZES = ((96, 96), (128, 96), (96, 128))
STEPS = (20, 12)
LONG_STEPS = 100
NUM_MANY = 4


class Role(StrEnum):
    PLAIN = "plain"
    #: One job with several outputs.
    MANY = "many"
    #: Long and first in line; aborted once it denoises.
    ABORT_RUNNING = "abort while running"
    #: Last in line; aborted while it waits.
    ABORT_QUEUED = "abort while queued"


@dataclass(frozen=True)
class Planned:
    #: From 1, in order of submission.
    number: int
    role: Role
    request: Mapping[str, Any]

    @property
    def prompt(self) -> str:
        return str(self.request["prompt"])

    @property
    def is_kept(self) -> bool:
        """Whether pictures are expected."""
        return self.role in (Role.PLAIN, Role.MANY)


def make_plan(prompts: Sequence[str]) -> list[Planned]:
    """24 jobs over the prompts: the long one first, the one to be aborted in the queue last."""
    return [_planned(number, prompts[(number - 1) % len(prompts)]) for number in range(1, NUM_JOBS + 1)]


def _planned(number: int, prompt: str) -> Planned:
    width, height = SIZES[0] if number % 4 else SIZES[1 + number // 4 % 2]
    request: dict[str, Any] = {
        "prompt": prompt,
        "width": width,
        "height": height,
        "num_inference_steps": STEPS[number % 3 == 0],
        "seed": number,
        "metadata": {"demo": number},
    }
    match number:
        case 1:
            return Planned(number, Role.ABORT_RUNNING, request | {"num_inference_steps": LONG_STEPS, "priority": 9})
        case 2:
            return Planned(number, Role.MANY, request | {"num_outputs": NUM_MANY})
        case _ if number == NUM_JOBS:
            return Planned(number, Role.ABORT_QUEUED, request | {"priority": 0})
        case _:
            return Planned(number, Role.PLAIN, request)


#: Refused for its height, which is no multiple of 8.
WRONG_REQUEST: Mapping[str, Any] = {"prompt": "a house of a height that no model has", "height": 97}
WRONG_FIELD = "height"


def bundled_prompts() -> list[str]:
    """The prompts that come with the bundled model; found beside the engine's code, without importing it."""
    spec = importlib.util.find_spec("engine")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("the engine is not installed here; the demo needs: pip install 'safelight[worker,api,local]'")
    path = Path(spec.submodule_search_locations[0]) / "models" / "tiny" / "prompts.json"
    return [str(entry["prompt"]) for entry in json.loads(path.read_text("utf-8"))]

"""The API with an openai client on it, and a worker double behind: what the tests of OpenAI's routes share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import openai
from pydantic import SecretStr

from api_stub.testing import running_api
from tasks.settings import Settings
from tests.integration.store_worker import StoreWorker, store_worker

MODELS = """
[tiny]
source = "bundled:tiny"
defaults = { height = 96, width = 96, num_inference_steps = 20 }
limits = { min_size = 64, max_size = 160 }
loras = { ink = "./ink.safetensors" }

[film]
source = "example/film"
modality = "video"
defaults = { height = 64, width = 96, num_inference_steps = 4, num_frames = 17, fps = 8.0 }
limits = { min_size = 64, max_size = 160, max_frames = 41 }
"""
KEY = "secret-key"


@dataclass(frozen=True)
class Stand:
    client: openai.OpenAI
    url: str
    worker: StoreWorker
    settings: Settings


@contextmanager
def stand(settings: Settings, home: Path, **changes: object) -> Iterator[Stand]:
    models = home / "models.toml"
    models.write_text(MODELS, "utf-8")
    changed = settings.model_copy(update={"models": models, "api_keys": SecretStr(KEY), **changes})
    with contextlib.ExitStack() as stack:
        worker = stack.enter_context(store_worker(changed))
        url = stack.enter_context(running_api(changed))
        client = stack.enter_context(openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=30))
        yield Stand(client, url, worker, changed)

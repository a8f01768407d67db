"""OpenAI's client, the API, and a worker that really draws with the bundled model."""

from __future__ import annotations

import base64
import contextlib
import io
import statistics
from pathlib import Path

import openai
import pytest
from PIL import Image

from api_stub.testing import running_api
from tasks.settings import Settings
from tests.e2e.nodes import Fleet

MODELS = """
[tiny]
source = "bundled:tiny"
mode = "request"  # starts sooner, as nothing is proved while it loads
dtype = "float32"
device = "cpu"
defaults = { height = 96, width = 96, num_inference_steps = 20, guidance_scale = 4.0 }
limits = { min_size = 64, max_size = 160 }
"""


def pixels(encoded: str | None) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(encoded or ""))).convert("RGB")


def apart(one: Image.Image, other: Image.Image) -> list[int]:
    """How far each sample is from its counterpart."""
    return [abs(a - b) for a, b in zip(one.tobytes(), other.tobytes(), strict=True)]


@pytest.mark.timeout(400)
def test_openai_s_client_gets_pictures_that_were_drawn(settings: Settings, tmp_path: Path) -> None:
    models = tmp_path / "models.toml"
    models.write_text(MODELS, "utf-8")
    with contextlib.ExitStack() as stack:
        running = Fleet(settings.model_copy(update={"lease_s": 15.0, "models": models}), tmp_path, stack)
        running.start_worker(timeout_s=200)
        url = stack.enter_context(running_api(running.settings))
        client = stack.enter_context(openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=100))
        ours = {"seed": 7, "num_inference_steps": 8}
        plain = client.images.generate(prompt="a red boat on the sea", n=2, size="96x64", extra_body=ours)
        first, second = (pixels(datum.b64_json) for datum in plain.data or [])
        assert first.size == (96, 64)
        assert len(first.getcolors(10_000) or []) > 500, "a drawing and no plain colour"
        assert first.tobytes() != second.tobytes()
        events = list(
            client.images.generate(
                prompt="a red boat on the sea", size="96x64", stream=True, partial_images=2, extra_body=ours
            )
        )
        assert [event.type for event in events][-1:] == ["image_generation.completed"]
        assert 2 <= len(events) <= 3, "previews came before the picture"
        assert max(apart(pixels(events[-1].b64_json), first)) <= 2, "same seed, same picture, alone and in a batch"
        stream = io.BytesIO()
        first.save(stream, "PNG")
        edited = client.images.edit(
            image=stream.getvalue(), prompt="a red boat on the sea", size="96x64", extra_body={**ours, "strength": 0.25}
        )
        (datum,) = edited.data or []
        assert 1 < statistics.mean(apart(pixels(datum.b64_json), first)) < 40, "changed, and still the same picture"

"""The bundled model: small, safe to open, loadable without a network, and described by its card."""

import json
import re
from pathlib import Path

import pytest

from tasks.models import BUNDLED

FOLDER = Path(__file__).parents[2] / "engine" / "models" / "tiny"
LIMIT_BYTES = 12_000_000


def test_the_folder_is_small_and_holds_no_code() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= LIMIT_BYTES
    assert {path.suffix for path in files} <= {".safetensors", ".json", ".md"}


def test_it_draws_a_picture_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    torch = pytest.importorskip("torch")
    from diffusers import DiffusionPipeline

    pipeline = DiffusionPipeline.from_pretrained(FOLDER, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    seeded = torch.Generator().manual_seed(1)
    image = pipeline("a red fish in the sea", num_inference_steps=4, guidance_scale=4.0, generator=seeded).images[0]
    assert image.size == (96, 96)
    red, _, blue = image.getpixel((2, 60))
    assert blue > red, "the sea is blue"


def test_the_demo_prompts_name_sizes_the_model_draws() -> None:
    prompts = json.loads((FOLDER / "prompts.json").read_text())
    assert len({entry["prompt"] for entry in prompts}) == len(prompts) == 24
    assert {tuple(entry["size"]) for entry in prompts} <= set(BUNDLED.sizes)


def test_the_card_states_what_was_measured() -> None:
    card = (FOLDER / "README.md").read_text()
    assert card.startswith("---\nlicense: apache-2.0\n")
    for row in ("scenes", "one object", "two objects", "counts"):
        assert re.search(rf"\| {row} \|.*\d+ of \d+.*\|", card), row


def test_the_example_of_the_card_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", (FOLDER / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(FOLDER.parents[2])
    exec(code.replace("num_inference_steps=20", "num_inference_steps=2"))

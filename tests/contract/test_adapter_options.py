"""Options of diffusers' own: set, it is what plain diffusers does with it; what cannot be set is told at the load."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from diffusers.models.attention_dispatch import attention_backend

from engine import EngineConfig, ModelLoadError, testing_pipelines
from engine.adapter import Output, RowCall
from engine.adapters.pipeline_options import OptionRefused, apply_options
from engine.adapters.stepwise import StepPipeline
from engine.adapters.whole import WholePipeline
from engine.batch import Batch
from engine.request import Row
from engine.result import Media
from tests.contract.families import FAMILIES

pytestmark = pytest.mark.usefixtures("one_thread")

#: above the tile of the random VAEs, which is 32 pixels wide
SIZE = 48


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def saved(family: str) -> Path:
        path = tmp_path_factory.mktemp(family)
        getattr(testing_pipelines, family)().save_pretrained(path)
        return path

    return saved


def config(path: Path, **options: Any) -> EngineConfig:
    return EngineConfig(**{"model": str(path), "num_threads": 1, "mode": "step", **options})


def served(path: Path, family: str, num_rows: int, **options: Any) -> Sequence[Media]:
    """Step mode, all forwards shared, decoding included."""
    adapter = StepPipeline(config(path, **options))
    adapter.load()
    wanted = [FAMILIES[family].request(f"r{i}", seed=i, height=SIZE, width=SIZE) for i in range(num_rows)]
    calls: list[RowCall] = [
        adapter.open(Batch(adapter.batch_key(one), (Row(one, 0),)), lambda *_: None, alone=False) for one in wanted
    ]
    while calls[0].outcome is None:
        assert len({call.key for call in calls}) == 1
        adapter.advance(calls)
    adapter.close()
    return [call.outcome.media for call in calls if isinstance(call.outcome, Output)]


def plain(path: Path, family: str, seed: int, prepare: Callable[[Any], object]) -> Any:
    pipeline = diffusers.DiffusionPipeline.from_pretrained(path)
    pipeline.set_progress_bar_config(disable=True)
    prepare(pipeline)
    made = FAMILIES[family].call(pipeline, FAMILIES[family].request(seed=seed, height=SIZE, width=SIZE))
    return (made * 255).round()


@pytest.mark.parametrize(
    ("options", "prepare"),
    [
        ({"vae_tiling": True}, lambda pipeline: pipeline.vae.enable_tiling()),
        ({"vae_slicing": True}, lambda pipeline: pipeline.vae.enable_slicing()),
    ],
)
def test_the_vae_saves_memory_as_in_plain_diffusers(
    folder: Callable[[str], Path], options: dict[str, Any], prepare: Callable[[Any], object]
) -> None:
    path = folder("stable_diffusion")
    for seed, made in enumerate(served(path, "stable_diffusion", 3, **options)):
        expected = plain(path, "stable_diffusion", seed, prepare)
        assert np.abs(made.pixels - expected).max() <= 1
        if "vae_tiling" in options:
            assert np.abs(plain(path, "stable_diffusion", seed, lambda _: None) - expected).max() > 1, "it shows"


def test_slicing_decodes_row_by_row(folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    decode = diffusers.AutoencoderKL._decode

    def watched(self: Any, latents: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        rows.append(latents.shape[0])
        return decode(self, latents, *args, **kwargs)

    monkeypatch.setattr(diffusers.AutoencoderKL, "_decode", watched)
    path = folder("stable_diffusion")
    for slicing in (True, False):
        served(path, "stable_diffusion", 3, vae_slicing=slicing)
        assert rows[-1] == (1 if slicing else 3)


def test_the_attention_backend_is_that_of_this_model_alone(folder: Callable[[str], Path]) -> None:
    path = folder("z_image")
    (made,) = served(path, "z_image", 1, attention_backend="_native_math")
    prepare = lambda pipeline: pipeline.transformer.set_attention_backend("_native_math")  # noqa: E731
    with attention_backend():  # the plain call leaves a default behind
        expected = plain(path, "z_image", 0, prepare)
    assert np.array_equal(made.pixels, expected)
    adapter = StepPipeline(config(path, attention_backend="_native_math"))
    adapter.load()
    processors = [module.processor for module in adapter._loaded.transformer.modules() if hasattr(module, "processor")]
    assert {one._attention_backend.value for one in processors} == {"_native_math"}
    other = diffusers.models.attention_dispatch._AttentionBackendRegistry.get_active_backend()[0]
    assert other.value == "native"
    adapter.close()


@pytest.mark.parametrize(
    ("family", "options", "words"),
    [
        (
            "stable_diffusion",
            {"attention_backend": "native"},
            "attention_backend: UNet2DConditionModel has an",
        ),
        ("z_image", {"attention_backend": "telepathy"}, "attention_backend: .*telepathy"),
        ("z_image", {"attention_backend": "flash"}, "attention_backend: .*flash-attn"),
    ],
)
def test_what_the_model_cannot_do_is_told_when_it_loads(
    folder: Callable[[str], Path], family: str, options: dict[str, Any], words: str
) -> None:
    adapter = StepPipeline(config(folder(family), **options))
    with pytest.raises(ModelLoadError, match=f"cannot load .*{words}.* Try: an entry without it"):
        adapter.load()
    adapter.close()


@pytest.mark.parametrize(
    ("components", "words"),
    [({"vae": torch.nn.Linear(1, 1)}, "vae_slicing: Linear has none"), ({}, "SimpleNamespace has no VAE")],
)
def test_a_vae_that_cannot(components: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionRefused, match=words):
        apply_options(SimpleNamespace(components=components), EngineConfig(model="x", vae_slicing=True))


def test_an_offloaded_model_makes_the_same_pictures(folder: Callable[[str], Path]) -> None:
    """The way to the device and back is the same without a GPU, only shorter."""
    path = folder("stable_diffusion")
    adapter = StepPipeline(config(path, mode="auto", device="cpu", offload="model"))
    capabilities = adapter.load()
    assert (capabilities.mode, "offload" in capabilities.mode_reason) == ("request", True)
    assert hasattr(adapter._loaded.unet, "_hf_hook")
    wanted = FAMILIES["stable_diffusion"].request("a", seed=0, height=SIZE, width=SIZE)
    (made,) = adapter.run(Batch(adapter.batch_key(wanted), (Row(wanted, 0),)), lambda *_: None)
    assert isinstance(made, Output)
    assert np.array_equal(made.media.pixels, plain(path, "stable_diffusion", 0, lambda _: None))
    adapter.close()


def test_offload_layer_by_layer_leaves_nothing_on_the_device(folder: Callable[[str], Path]) -> None:
    """accelerate cannot run it with a CPU in place of the GPU; that it is set up is what is ours."""
    adapter = StepPipeline(config(folder("stable_diffusion"), mode="auto", device="cpu", offload="sequential"))
    capabilities = adapter.load()
    assert (capabilities.mode, "offload" in capabilities.mode_reason) == ("request", True)
    assert all(weight.is_meta for weight in adapter._loaded.unet.parameters())
    adapter.close()


@pytest.mark.parametrize(("adapter", "mode"), [(WholePipeline, "request"), (StepPipeline, "step")])
def test_compile_is_for_the_denoiser_alone(
    folder: Callable[[str], Path], adapter: type[WholePipeline], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole module in request mode, what is behind its door in step mode."""
    compiled: list[str] = []

    def note(what: Any) -> Any:
        compiled.append(type(getattr(what, "__self__", what)).__name__)
        return what

    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, *_, **__: note(self))
    monkeypatch.setattr(torch, "compile", note)
    path = folder("stable_diffusion")
    for wanted in (True, False):
        made = adapter(config(path, mode=mode, compile=wanted))
        made.load()
        made.close()
        assert compiled == ["UNet2DConditionModel"]

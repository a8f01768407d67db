"""Every fault of a models file is named with its entry before a worker meets it; and torch's own facts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.doctor.conftest import Doctor
from tests.integration.doctor.models_files import BadModels


def test_every_fault_is_named_with_its_entry(doctor: Doctor, probed: BadModels) -> None:
    report = doctor("models,device", **probed.env)
    assert report.code == 1
    expected = {
        "typo.source": ("FAIL", "no folder", "no-such-folder", "source in [typo]"),
        "nothing.source": ("FAIL", "'painter' is no path and no hub id", "OWNER/NAME", "[nothing]"),
        "plain.source": ("FAIL", "no model_index.json", "source in [plain]"),
        "offline.device": ("FAIL", "device = 'cuda:9'", 'device = "auto" in [offline]'),
        "offline.source": ("FAIL", "HF_HUB_OFFLINE", "hf download somebody/else"),
        "hub.source": ("ok", "somebody/painter (cache)"),
        "cut.weights": ("FAIL", "vae/diffusion_pytorch_model.safetensors", "download it again"),
        "lfs.weights": ("FAIL", "unet/diffusion_pytorch_model.safetensors", "git lfs pull"),
        "pickled.weights": ("FAIL", "unet has pickled weights only", "allow_pickle = true in [pickled]"),
        "trusted.weights": ("ok", "pickled"),
        "future.pipeline": ("FAIL", "no class PipelineOfTomorrow", "upgrade diffusers", "[future]"),
        "dotted.pipeline": ("FAIL", "no.such.Thing", "pipeline_class in [dotted]"),
        "gpu.device": ("FAIL", "device = 'cuda:7'", 'device = "auto" in [gpu]'),
        "lora.loras": ("FAIL", "there is no file", "ink of loras in [lora]"),
        "compiled.entry": ("FAIL", "loras cannot be combined with compile", "[compiled]"),
        "sampler.entry": ("FAIL", "eular", "noise_schedulers in [sampler]", "dpmpp_2m"),
        "tiny.weights": ("ok", "5.6 million parameters, safetensors"),
    }
    for name, (status, *words) in expected.items():
        report.says(f"models.{name}", status, *words)
    good = [each for each in report.findings if each.check.startswith(("models.tiny.", "models.hub."))]
    assert {each.status for each in good} == {"ok"}
    report.says("device.torch", "ok", "torch 2.", "diffusers")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[mine\n", ("is not TOML", "SAFELIGHT_MODELS")),
        ('[mine]\nsource = "x"\nmax_batch_rows = 0\n', ("[mine.max_batch_rows]", "correct this entry")),
        ('[mine]\nsource = "x"\n[mine.limits]\nmax_steps = 4\n', ("num_inference_steps is above limits.max_steps",)),
        (None, ("cannot read", "SAFELIGHT_MODELS")),
    ],
)
def test_a_file_that_cannot_be_read(doctor: Doctor, tmp_path: Path, text: str | None, words: tuple[str, ...]) -> None:
    """No child process: the file's own check comes before."""
    models = tmp_path / "models.toml"
    if text is not None:
        models.write_text(text, "utf-8")
    report = doctor("models", SAFELIGHT_MODELS=str(models))
    assert report.code == 1
    report.says("models.file", "FAIL", str(models), *words)

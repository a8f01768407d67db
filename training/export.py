"""Assemble the shipped folder (UNet and autoencoder in fp16, text encoder in fp32) and check its contract.

usage: python -m training.export BASE SNAPSHOT VAE OUT
Tokenizer and noise scheduler come from BASE, the UNet and the text encoder from SNAPSHOT.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import torch
from diffusers import (
    AutoencoderKL,
    AutoPipelineForImage2Image,
    DDIMScheduler,
    DiffusionPipeline,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)
from transformers import CLIPTextModel, CLIPTokenizer

LIMIT_BYTES = 12_000_000
SIZES = [(96, 96), (96, 128), (128, 96)]
ODD_PROMPTS = ["", "Un château 🏰 日本語", "x " * 200]
PROMPTS = ["a red circle above a blue square", "a red house with a blue roof beside a tree under a yellow sun"]


def assemble(base: str, snapshot: str, vae: str, out: str) -> None:
    """The text encoder stays in fp32: given no dtype, transformers keeps the stored one and diffusers does not."""
    scheduler = DDIMScheduler.from_pretrained(base, subfolder="scheduler")
    pipeline = StableDiffusionPipeline(
        vae=AutoencoderKL.from_pretrained(vae).half(),
        text_encoder=CLIPTextModel.from_pretrained(snapshot, subfolder="text_encoder", dtype=torch.float32),
        tokenizer=CLIPTokenizer.from_pretrained(base, subfolder="tokenizer"),
        unet=UNet2DConditionModel.from_pretrained(snapshot, subfolder="unet").half(),
        scheduler=scheduler,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.save_pretrained(out)
    for path in Path(out).glob("*/config.json"):
        config = json.loads(path.read_text())
        config.pop("_name_or_path", None)
        path.write_text(json.dumps(config, indent=2) + "\n")


def swap_in(fresh: str, home: str) -> None:
    """Replace the model's folder, keeping the files beside the weights (the card, the prompts)."""
    for name in ("README.md", "prompts.json"):
        if (Path(home) / name).exists():
            shutil.copy(Path(home) / name, Path(fresh) / name)
    old = Path(home + ".old")
    if Path(home).exists():
        Path(home).rename(old)
    Path(fresh).rename(home)
    shutil.rmtree(old, ignore_errors=True)


def check_contract(folder: str) -> None:
    """Size, offline loading, repeatability, every advertised size, any text, image to image."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    total = sum(path.stat().st_size for path in files)
    assert total <= LIMIT_BYTES, f"{total} bytes"
    assert {path.suffix for path in files} <= {".safetensors", ".json", ".md", ".txt"}, "only safe files"
    pipeline = DiffusionPipeline.from_pretrained(folder, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)

    def make(prompts: list[str], seeds: list[int]) -> np.ndarray:
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        made = pipeline(prompts, num_inference_steps=6, guidance_scale=4, generator=generators, output_type="np")
        return made.images

    first, again, alone = make(PROMPTS, [1, 2]), make(PROMPTS, [1, 2]), make(PROMPTS[1:], [2])
    assert np.array_equal(first, again), "the same seed gives the same picture"
    assert np.allclose(first[1], alone[0], atol=1e-3), "a row does not depend on its batch"
    for height, width in SIZES:
        image = pipeline("a red fish in the sea", height=height, width=width, num_inference_steps=2).images[0]
        assert image.size == (width, height)
    for prompt in ODD_PROMPTS:
        pipeline(prompt, num_inference_steps=2)
    second = AutoPipelineForImage2Image.from_pipe(pipeline)
    second(PROMPTS[0], image=pipeline.numpy_to_pil(first)[0], strength=0.7, num_inference_steps=6)
    print(f"contract holds: {total} bytes in {len(files)} files")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("base", "snapshot", "vae", "out"):
        parser.add_argument(name)
    args = parser.parse_args()
    torch.set_num_threads(1)
    fresh = args.out + ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    assemble(args.base, args.snapshot, args.vae, fresh)
    check_contract(fresh)
    swap_in(fresh, args.out)


if __name__ == "__main__":
    main()

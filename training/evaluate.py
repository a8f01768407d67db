"""Generate held-out captions with a pipeline folder and count what the automatic check finds right.

usage: python -m training.evaluate PIPELINE [--n 100] [--kinds one two count scene] [--json OUT] [--sheet OUT.png]
"""

import argparse
import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from diffusers import DiffusionPipeline
from PIL import Image

from training.checks import SceneBank, check
from training.shapes import SIZE, Picture
from training.toy_world import KINDS, draw_split

BATCH = 20
Render = Callable[[list[Picture]], list[np.ndarray]]


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share, in percent."""
    z, share = 1.96, hits / n
    middle = share + z * z / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 100 / (1 + z * z / n)
    return round((middle - spread) * scale, 1), round((middle + spread) * scale, 1)


def sampled(pipeline: DiffusionPipeline, steps: int, guidance: float) -> Render:
    """Pictures from the captions alone; the i-th of a batch has seed i."""

    def render(pictures: list[Picture]) -> list[np.ndarray]:
        generators = [torch.Generator().manual_seed(i) for i in range(len(pictures))]
        captions = [picture.caption for picture in pictures]
        made = pipeline(captions, num_inference_steps=steps, guidance_scale=guidance, generator=generators)
        return [np.asarray(image) for image in made.images]

    return render


def round_trip(pipeline: DiffusionPipeline) -> Render:
    """The true renders through the autoencoder: the best any denoiser could do."""

    @torch.no_grad()
    def render(pictures: list[Picture]) -> list[np.ndarray]:
        pixels = torch.stack([torch.from_numpy(p.pixels.copy()) for p in pictures]).permute(0, 3, 1, 2) / 127.5 - 1
        decoded = pipeline.vae.decode(pipeline.vae.encode(pixels).latent_dist.mean).sample.clamp(-1, 1)
        return list(((decoded.permute(0, 2, 3, 1) + 1) * 127.5).round().byte().numpy())

    return render


def truth(pictures: list[Picture]) -> list[np.ndarray]:
    return [picture.pixels for picture in pictures]


def evaluate(render: Render, kind: str, n: int, seed: int, held: bool) -> tuple[dict[str, object], list[np.ndarray]]:
    """Percent right per fact, the count and interval of pictures with everything right, and the pictures."""
    rng = random.Random(f"{kind} {seed}")
    wanted = [draw_split(rng, kind, (SIZE, SIZE), held) for _ in range(n)]
    made = [pixels for i in range(0, n, BATCH) for pixels in render(wanted[i : i + BATCH])]
    bank = SceneBank() if kind == "scene" else None
    results = [check(pixels, picture, bank) for pixels, picture in zip(made, wanted, strict=True)]
    facts = sorted({name for result in results for name in result})
    percent = {
        name: round(100 * float(np.mean([result[name] for result in results if name in result])), 1) for name in facts
    }
    hits = sum(result["all"] for result in results)
    return {"n": n, "right": hits, "interval": wilson(hits, n), "percent": percent}, made


def sheet(pictures: list[np.ndarray], columns: int = 12) -> Image.Image:
    rows = math.ceil(len(pictures) / columns)
    blank = np.full((SIZE, SIZE, 3), 255, np.uint8)
    tiles = [*pictures, *[blank] * (rows * columns - len(pictures))]
    bands = [np.concatenate(tiles[r * columns : (r + 1) * columns], 1) for r in range(rows)]
    return Image.fromarray(np.concatenate(bands))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline")
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--source", choices=["model", "autoencoder", "truth"], default="model")
    parser.add_argument("--trained", action="store_true", help="ask for captions from the trained side of the split")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guidance", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=4242)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sheet", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    render: Render = truth
    if args.source != "truth":
        pipeline = DiffusionPipeline.from_pretrained(args.pipeline, local_files_only=True)
        pipeline.set_progress_bar_config(disable=True)
        sampling = args.source == "model"
        render = sampled(pipeline, args.steps, args.guidance) if sampling else round_trip(pipeline)
    report, pictures = {}, []
    for kind in args.kinds:
        report[kind], made = evaluate(render, kind, args.n, args.seed, not args.trained)
        pictures += made[:36]
        print(kind, json.dumps(report[kind]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    if args.sheet:
        sheet(pictures).save(args.sheet)


if __name__ == "__main__":
    main()

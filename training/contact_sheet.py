"""One picture for each demo prompt of a pipeline folder, first try, on one labelled sheet.

usage: python -m training.contact_sheet PIPELINE OUT.png [--seed 0] [--columns 6]
"""

import argparse
import json
import textwrap
from pathlib import Path

import torch
from diffusers import DiffusionPipeline
from PIL import Image, ImageDraw, ImageFont

ZOOM = 1.5
CELL = 192
LABEL = 42
MARGIN = 8
PAPER, INK = (250, 249, 246), (60, 58, 54)


def draw_sheet(pictures: list[tuple[str, Image.Image]], columns: int) -> Image.Image:
    """Pictures at their own proportions, each over its prompt."""
    rows = -(-len(pictures) // columns)
    width, height = columns * (CELL + MARGIN) + MARGIN, rows * (CELL + LABEL + MARGIN) + MARGIN
    paper = Image.new("RGB", (width, height), PAPER)
    pen, font = ImageDraw.Draw(paper), ImageFont.load_default(11)
    for i, (prompt, picture) in enumerate(pictures):
        left, top = MARGIN + i % columns * (CELL + MARGIN), MARGIN + i // columns * (CELL + LABEL + MARGIN)
        large = picture.resize((int(picture.width * ZOOM), int(picture.height * ZOOM)), Image.Resampling.BICUBIC)
        paper.paste(large, (left + (CELL - large.width) // 2, top + CELL - large.height))
        label = "\n".join(textwrap.wrap(prompt, 32)[:3])
        pen.multiline_text((left + CELL / 2, top + CELL + 2), label, INK, font, "ma", 2, "center")
    return paper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--columns", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    pipeline = DiffusionPipeline.from_pretrained(args.pipeline, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    pictures = []
    for entry in json.loads((Path(args.pipeline) / "prompts.json").read_text()):
        height, width = entry["size"]
        seeded = torch.Generator().manual_seed(args.seed)
        made = pipeline(
            entry["prompt"], height=height, width=width, num_inference_steps=20, guidance_scale=4.0, generator=seeded
        )
        pictures.append((entry["prompt"], made.images[0]))
    draw_sheet(pictures, args.columns).save(args.out, optimize=True)


if __name__ == "__main__":
    main()

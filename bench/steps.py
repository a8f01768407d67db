"""What step mode adds to a request and step, in microseconds of CPU: with models that cost next to nothing.

python -m bench.steps [--family stable_diffusion|stable_diffusion_xl|flux|wan] [--rows 8] [--rounds 7]

Plain diffusers one request at a time, against as many requests in step mode: all different, so that each runs a
pipeline call of its own, and equal but for prompt and seed, so that they form a gang. The denoiser answers with zeros.
The cost of a step is what a request of more steps takes longer, so that encoding and decoding do not count.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.pipelines import CLASSES, SIZES, build
from bench.traces import Arrival, Side, loaded
from engine import DiffusionRequest, SamplingParams
from engine.adapters.step_safety import denoisers_of

STEPS = (10, 60)
PROMPTS = ("a red house", "two boats at night", "fog", "a small blue star")


def nothing(*args: Any, **kwargs: Any) -> Any:
    """In place of a denoiser's forward: zeros of the shape of its input."""
    sample = args[0] if args else kwargs["sample" if "sample" in kwargs else "hidden_states"]
    return (torch.zeros_like(sample),)


def requests(size: int, rows: int, num_steps: int, *, equal: bool) -> list[DiffusionRequest]:
    return [
        DiffusionRequest(
            request_id=str(index),
            prompt=PROMPTS[index % len(PROMPTS)],
            params=SamplingParams(
                height=size,
                width=size,
                seed=index,
                num_inference_steps=num_steps,
                guidance_scale=5.0 if equal else 5.0 + index / 8,
                num_frames=5,
            ),
        )
        for index in range(rows)
    ]


def cost_us(serve: Callable[[int], None], rows: int) -> float:
    """Of a request and step."""
    spent = []
    for num_steps in STEPS:
        began = time.process_time()
        serve(num_steps)
        spent.append(time.process_time() - began)
    return 1e6 * (spent[1] - spent[0]) / (STEPS[1] - STEPS[0]) / rows


def rounded(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} [{min(values):.0f} to {max(values):.0f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default="stable_diffusion", choices=list(SIZES))
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    size = SIZES[options.family][0]
    with tempfile.TemporaryDirectory(prefix="safelight-bench-") as folder:
        build(options.family).save_pretrained(folder)
        whole, stepwise = (loaded(Path(folder), mode, CLASSES.get(options.family)) for mode in ("request", "step"))
    for model in denoisers_of(whole._loaded).values():
        vars(model)["forward"] = nothing
    for site in stepwise._rendezvous.sites:
        if site.stage == "denoising":
            site.original = nothing

    def serve(side: Side, equal: bool) -> Callable[[int], None]:
        def served(num_steps: int) -> None:
            side.replay([Arrival(0.0, one) for one in requests(size, options.rows, num_steps, equal=equal)])

        return served

    plain = whole._pipeline("text2image").pipeline

    def alone(num_steps: int) -> None:
        for one in requests(size, options.rows, num_steps, equal=False):
            params = one.params
            frames = {"num_frames": 5} if options.family == "wan" else {}
            plain(
                one.prompt,
                height=size,
                width=size,
                num_inference_steps=num_steps,
                guidance_scale=params.guidance_scale,
                generator=torch.Generator().manual_seed(params.seed),
                output_type="np",
                **frames,
            )

    step = Side(stepwise, "step", options.rows)
    ways = {
        "plain diffusers": alone,
        "step mode, all different": serve(step, False),
        "step mode, equal": serve(step, True),
    }
    measured: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(options.rounds + 1):
        for name, way in ways.items():
            took = cost_us(way, options.rows)
            if number:  # the first round is to warm up
                measured[name].append(took)
    print(f"{options.family}, {options.rows} requests, µs of CPU a request and step\n")
    print("| | in all | above plain diffusers |\n| --- | --- | --- |")
    base = measured["plain diffusers"]
    for name, costs in measured.items():
        above = [mine - its for mine, its in zip(costs, base, strict=True)]
        print(f"| {name} | {rounded(costs)} | {rounded(above)} |")


if __name__ == "__main__":
    main()

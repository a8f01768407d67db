"""What step mode adds to a request and step, in microseconds of CPU: with models that cost next to nothing.

python -m bench.steps [--family stable_diffusion|stable_diffusion_xl|flux|wan] [--rows 8] [--rounds 7]

Plain diffusers one request at a time, against as many requests in step mode: all different, so that each runs a
pipeline call of its own, and equal but for prompt and seed, so that they form a gang. The denoiser answers with zeros
and notes when it was asked: a step is from one of its calls to the next, so that encoding and decoding do not count.
CPU time of this thread alone, of some hundred steps. Beside the median stands the first decile: on a machine that has
other work, a step that was left in peace.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from bench.pipelines import CLASSES, SIZES, build
from bench.traces import Arrival, Side, loaded
from engine import DiffusionRequest, SamplingParams
from engine.adapters.step_safety import denoisers_of

STEPS = 60
#: at the start, until all rows stand before the same call
UNEVEN = 6
PROMPTS = ("a red house", "two boats at night", "fog", "a small blue star")


#: of the thread's CPU, when the denoiser was asked
asked_s: list[float] = []


def nothing(*args: Any, **kwargs: Any) -> Any:
    """In place of a denoiser's forward: zeros of the shape of its input."""
    asked_s.append(time.thread_time())
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


def costs_us(serve: Callable[[], object], rows: int, span: int = 1) -> list[float]:
    """Of a request and step: one figure for every `span` steps of all rows together."""
    asked_s.clear()
    serve()
    calls = max(1, round(len(asked_s) / STEPS))  # two a step where guidance is a call of its own
    even = asked_s[UNEVEN * calls : (STEPS - UNEVEN) * calls : calls * span]
    return [1e6 * (after - before) / rows / span for before, after in pairwise(even)]


def plain_us(alone: Callable[[DiffusionRequest], None], each: list[DiffusionRequest], rows: int) -> list[float]:
    """Over as many steps at a time as one of `rows` rows is, so that quantiles mean the same."""
    return [cost for one in each for cost in costs_us(partial(alone, one), 1, rows)]


def cells(costs: list[float], base: list[float]) -> str:
    """Median and first decile, and what they are above those of `base`."""
    mine, its = ((statistics.median(values), statistics.quantiles(values, n=10)[0]) for values in (costs, base))
    return " | ".join(f"{value:.0f}" for value in (*mine, *(a - b for a, b in zip(mine, its, strict=True))))


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

    def serve(equal: bool) -> list[float]:
        trace = [Arrival(0.0, one) for one in requests(size, options.rows, STEPS, equal=equal)]
        return costs_us(lambda: stepwise_side.replay(trace), options.rows)

    plain = whole._pipeline("text2image").pipeline

    def alone(one: DiffusionRequest) -> None:
        params = one.params
        frames = {"num_frames": params.num_frames} if options.family == "wan" else {}
        plain(
            one.prompt,
            height=size,
            width=size,
            num_inference_steps=params.num_inference_steps,
            guidance_scale=params.guidance_scale,
            generator=torch.Generator().manual_seed(params.seed),
            output_type="np",
            **frames,
        )

    stepwise_side = Side(stepwise, "step", options.rows)
    ways: dict[str, Callable[[], list[float]]] = {
        "plain diffusers": lambda: plain_us(alone, requests(size, options.rows, STEPS, equal=False), options.rows),
        "step mode, all different": lambda: serve(False),
        "step mode, equal": lambda: serve(True),
    }
    measured: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(options.rounds + 1):
        for name, way in ways.items():
            costs = way()
            if number:  # the first round is to warm up
                measured[name] += costs
    print(f"{options.family}, {options.rows} requests, µs of CPU a request and step\n")
    print("| | median | first decile | above plain diffusers: median | first decile |\n| --- | --- | --- | --- | --- |")
    for name, costs in measured.items():
        print(f"| {name} | {cells(costs, measured['plain diffusers'])} |")


if __name__ == "__main__":
    main()

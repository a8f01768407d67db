"""Table 1: throughput and latency of every system on the same Poisson arrivals of mixed requests.

python -m bench.peers.load [--systems safelight,celery,…] [--rates 0.5,1,1.8,3] [--requests 32] [--seed 1]
    [--model small|bundled] [--json FILE]

Rates are multiples of what bare diffusers does one by one, which is measured first, on the same requests and in the
same run. All systems stand at once; at each rate they take turns, each time another one first. Every system computes
with one thread. Latency ends when the client holds the picture.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bench.peers import figures, tables, trace
from bench.peers.command import show
from bench.peers.doors import Door, open_door
from bench.peers.model import Model
from bench.peers.systems import NAMES, Place, Running, running
from bench.peers.usage import snapshot, spent

RATES = (0.5, 1.0, 1.8, 3.0)
SIZES = {"small": (16, 24), "bundled": (64, 96)}
#: BentoML measures its first 18 calls one by one before it begins to batch
WARM_UPS = 24


@dataclass(frozen=True, slots=True)
class Bare:
    """The bare pipeline's pictures by request id, and what one took alone in the mean: time, and CPU time."""

    pictures: Mapping[str, bytes]
    serial_s: float
    cpu_s: float


def save_model(kind: str, folder: Path) -> Path:
    """`small`: a random Stable Diffusion whose forward gains from rows, as a GPU's does; `bundled`: the trained one."""
    if kind == "bundled":
        from bench.stand import MODEL_DIR

        return MODEL_DIR
    from bench.pipelines import build

    build("stable_diffusion").save_pretrained(folder / "model")
    return folder / "model"


def render_bare(folder: Path, wanted: Sequence[trace.Wanted]) -> Bare:
    model = Model(str(folder))
    model.render([wanted[0].as_request()])
    began, began_cpu = time.perf_counter(), time.process_time()
    pictures = {one.id: model.render([one.as_request()])[0] for one in wanted}
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    return Bare(pictures, wall_s / len(wanted), cpu_s / len(wanted))


def off_by(picture: bytes, bare: bytes) -> int:
    """The worst pixel, in levels of 255; 255 if even the size is another."""
    ours, theirs = (np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), dtype=np.int16) for data in (picture, bare))
    return int(np.abs(ours - theirs).max()) if ours.shape == theirs.shape else 255


async def replay(door: Door, arrivals: Sequence[trace.Arrival], bare: Bare) -> list[figures.Answer]:
    """Every request at its time, however late the system is."""
    began = time.monotonic()

    async def one(arrival: trace.Arrival) -> tuple[float, bytes | None]:
        await asyncio.sleep(max(0.0, began + arrival.at_s - time.monotonic()))
        try:
            picture = await door.render(arrival.wanted)
        except Exception as error:
            print(f"  {arrival.wanted.id}: {type(error).__name__}: {error}", file=sys.stderr)
            return time.monotonic() - began, None
        return time.monotonic() - began, picture

    ends = await asyncio.gather(*(one(arrival) for arrival in arrivals))
    return [
        figures.Answer(arrival.at_s, ended_s, picture and off_by(picture, bare.pictures[arrival.wanted.id]))
        for arrival, (ended_s, picture) in zip(arrivals, ends, strict=True)
    ]


async def warm_up(door: Door, sizes: Sequence[int], num_requests: int) -> None:
    """Until everything that a system does only once has been done. Raises what it raises."""
    wanted = [trace.Wanted(f"w{index}", "warm", sizes[index % 2], 10, index) for index in range(num_requests)]
    for start in range(0, num_requests, 4):
        await asyncio.gather(*(door.render(one) for one in wanted[start : start + 4]))


async def measure(systems: Sequence[Running], bare: Bare, options: argparse.Namespace) -> list[figures.Cell]:
    async with contextlib.AsyncExitStack() as stack:
        doors: dict[str, Door] = {}
        for system in systems:
            doors[system.name] = open_door(system)
            stack.push_async_callback(doors[system.name].close)
            await warm_up(doors[system.name], SIZES[options.model], options.warm_ups)
        cells = []
        wanted = requests(options)
        for number, rate in enumerate(options.rates):
            arrivals = trace.poisson(wanted, rate / bare.serial_s, options.seed)
            turn = number % len(systems)
            for system in (*systems[turn:], *systems[:turn]):
                cell = await one_cell(system, systems, doors[system.name], rate, arrivals, bare)
                print(
                    f"  x{rate:g} {system.name}: {cell.images_per_s:.2f}/s, mean {cell.mean_s:.2f} s", file=sys.stderr
                )
                cells.append(cell)
    order = {system.name: index for index, system in enumerate(systems)}
    return sorted(cells, key=lambda cell: (cell.rate, order[cell.system]))


async def one_cell(
    system: Running, systems: Sequence[Running], door: Door, rate: float, arrivals: Sequence[trace.Arrival], bare: Bare
) -> figures.Cell:
    others = [pid for other in systems if other is not system for pid in other.pids]
    before, others_before = snapshot(system.pids), snapshot(others)
    answers = await replay(door, arrivals, bare)
    total_s, busiest_s = spent(before, snapshot(system.pids))
    others_s, _ = spent(others_before, snapshot(others))
    return figures.summarise(system.name, rate, answers, figures.Usage(total_s, busiest_s, others_s))


def requests(options: argparse.Namespace) -> list[trace.Wanted]:
    return trace.mixed(options.requests, SIZES[options.model], options.seed)


def run(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The table, and everything behind it."""
    with tempfile.TemporaryDirectory(prefix="safelight-bench-") as folder, contextlib.ExitStack() as stack:
        model = save_model(options.model, Path(folder))
        bare = render_bare(model, requests(options))
        print(f"bare: {1 / bare.serial_s:.2f} images/s one by one", file=sys.stderr)
        place = Place(model, Path(folder), bare.serial_s)
        systems = [stack.enter_context(running(name, place)) for name in options.systems]
        cells = asyncio.run(measure(systems, bare, options))
    facts: dict[str, Any] = {"requests": options.requests, "seed": options.seed, "model": options.model}
    facts |= {"serial_s": bare.serial_s, "serial_cpu_s": bare.cpu_s}
    return tables.load_table(cells, bare.serial_s, bare.cpu_s), {**facts, "cells": [cell.as_json() for cell in cells]}


def names(text: str) -> list[str]:
    """Of systems, comma-separated. Raises ValueError for one that there is not."""
    wanted = [name.strip() for name in text.split(",")]
    if unknown := set(wanted) - set(NAMES):
        raise argparse.ArgumentTypeError(f"no such system: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    return wanted


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=names, default=list(NAMES))
    parser.add_argument("--rates", type=lambda text: [float(part) for part in text.split(",")], default=list(RATES))
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--warm-ups", type=int, default=WARM_UPS, help="requests of 10 steps for each system before")
    parser.add_argument("--model", choices=sorted(SIZES), default="small")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    return parser.parse_args(arguments)


def main() -> None:
    show(parse(), run)


if __name__ == "__main__":
    main()

"""Both modes on a device: times per step by batch size, and how soon an aborted row is gone. A table for the README.

python -m bench.gpu_smoke                   on CUDA: SDXL- and FLUX-shaped random weights in bfloat16, 1024 px
python -m bench.gpu_smoke --device cpu      the same script on a small size, to see that it runs

The weights are random and the pictures mean nothing: only shapes and times are real.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import torch

from bench.device_pipelines import SHAPES, build
from engine import Aborted, Completed, DiffusionEngine, DiffusionRequest, EngineConfig, Progress, SamplingParams

ABORT_TRIALS = 5


def request(name: str, size: int, num_steps: int, **changes: Any) -> DiffusionRequest:
    params = SamplingParams(height=size, width=size, seed=0, num_inference_steps=num_steps, guidance_scale=4.0)
    return DiffusionRequest(request_id=name, prompt=f"a picture of {name}", params=params, **changes)


def seconds_for(engine: DiffusionEngine, num_rows: int, size: int, num_steps: int) -> float:
    """All at once, until the last is done."""
    engine.pause()
    streams = [engine.submit(request(f"r{index}", size, num_steps)) for index in range(num_rows)]
    began = time.perf_counter()
    engine.resume()
    for stream in streams:
        end = stream.result(600)
        assert isinstance(end, Completed), end
    return time.perf_counter() - began


def abort_ms(engine: DiffusionEngine, size: int) -> float:
    """From the call of `abort` to the terminal event, while a mate runs on."""
    times = []
    for _ in range(ABORT_TRIALS):
        mate, doomed = (engine.submit(request(name, size, 30)) for name in ("mate", "doomed"))
        while not (isinstance(event := doomed.get(600), Progress) and event.step >= 2):
            assert not isinstance(event, Completed)
        began = time.perf_counter()
        engine.abort("doomed")
        assert isinstance(doomed.result(600), Aborted | Completed)
        times.append(1000 * (time.perf_counter() - began))
        engine.abort("mate")
        mate.result(600)
    return statistics.median(times)


def measure(shape: str, device: str, dtype: str, batches: Sequence[int], num_steps: int) -> None:
    size = SHAPES[shape].size if device != "cpu" else SHAPES[shape].small_size
    with tempfile.TemporaryDirectory(prefix="safelight-bench-") as folder:
        build(shape, small=device == "cpu").to(getattr(torch, dtype)).save_pretrained(folder)
        for mode in ("request", "step"):
            config = EngineConfig(
                model=folder,
                device=device,
                dtype=dtype,  # type: ignore[arg-type]
                mode=mode,  # type: ignore[arg-type]
                max_batch_rows=max(batches),
            )
            with DiffusionEngine.make_engine(config) as engine:
                seconds_for(engine, max(batches), size, 2)
                times = [seconds_for(engine, rows, size, num_steps) for rows in batches]
                gains = " | ".join(
                    f"{1000 * t / num_steps:.0f} ms, {times[0] * rows / t:.2f}x"
                    for rows, t in zip(batches, times, strict=True)
                )
                print(f"| {shape} | {size} px | {mode} | {gains} | {abort_ms(engine, size):.0f} ms |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--shape", choices=list(SHAPES), action="append", help="repeatable; all by default")
    options = parser.parse_args()
    on_cpu = options.device == "cpu"
    name = "a CPU" if on_cpu else torch.cuda.get_device_name(options.device)
    dtype = "float32" if on_cpu else "bfloat16"
    print(f"{name}, torch {torch.__version__}, {dtype}, {options.steps} steps, decode included\n")
    heads = " | ".join(f"{rows} rows: a step, gain" for rows in options.rows)
    print(f"| shape | size | mode | {heads} | abort |")
    print("| --- | --- | --- " + "| --- " * len(options.rows) + "| --- |")
    for shape in options.shape or SHAPES:
        measure(shape, options.device, dtype, options.rows, options.steps)


if __name__ == "__main__":
    main()

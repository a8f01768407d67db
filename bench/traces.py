"""Throughput and latency of the engine's two modes beside one request at a time, on traces of mixed requests.

python -m bench.traces [--family stable_diffusion|stable_diffusion_xl|flux|wan] [--trace saturated|poisson|burst]
    [--requests 32] [--rows 8] [--rounds 3]

All sides run the same requests on the same random weights, one thread, in this process. Time is the process's CPU time
plus the idle time that is skipped, so that other programs do not count and no arrival is waited for.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.stand import spread
from engine import Completed, DiffusionRequest, EngineConfig, SamplingParams
from engine.batch_runner import BatchRunner
from engine.finisher import Finisher
from engine.ledger import Account, Ledger
from engine.pace import Pace
from engine.scheduler import Scheduler, SchedulerPolicy
from engine.stats import Counters
from engine.step_runner import StepRunner
from engine.step_scheduler import StepScheduler
from engine.stream import OutputStream

PROMPTS = ("a red house", "two boats at night", "a small blue star above a very large green moon", "fog")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request and when it comes, in seconds of the trace."""

    at_s: float
    request: DiffusionRequest


class VirtualClock:
    """CPU seconds of this process, plus what was skipped."""

    def __init__(self) -> None:
        self._skipped_s = -time.process_time()

    def __call__(self) -> float:
        return time.process_time() + self._skipped_s

    def skip_to(self, then_s: float) -> None:
        self._skipped_s += max(0.0, then_s - self())


@dataclass(frozen=True, slots=True)
class Result:
    """Requests a second, and their latencies in seconds in order of arrival."""

    throughput: float
    latencies: Sequence[float]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.latencies)

    @property
    def p95(self) -> float:
        return statistics.quantiles(self.latencies, n=20)[-1]


@dataclass(frozen=True, slots=True)
class Side:
    """A way to serve: an adapter, its mode, and at most so many rows at once."""

    adapter: Any
    mode: str
    max_rows: int

    def replay(self, trace: Sequence[Arrival]) -> Result:
        """Everything that the device thread does, on this one."""
        clock = VirtualClock()
        ledger = Ledger(max_waiting=len(trace))
        spoiled: list[Exception] = []
        counters = Counters()
        finisher = Finisher(ledger, clock, lambda account, error: spoiled.append(error))
        scheduler, work = self._runner(ledger, clock, counters, finisher)
        rows_told = 0
        waiting = list(trace)
        ended: dict[str, float] = {}
        streams: dict[str, OutputStream] = {}
        while len(ended) < len(trace):
            while waiting and waiting[0].at_s <= clock():
                arrival = waiting.pop(0)
                request = arrival.request
                streams[request.request_id] = OutputStream(request.request_id, lambda: None)
                ledger.open(Account(request, streams[request.request_id], arrival.at_s))
                scheduler.submit(request, self.adapter.batch_key(request), arrival.at_s)
            worked = work()
            if counters.rows_done > rows_told:  # outputs are finished on a thread of their own
                finisher.settle()
                rows_told = counters.rows_done
                assert not spoiled, spoiled
            for name, stream in streams.items():
                if name not in ended and stream.done:
                    end = stream.result(0)
                    assert isinstance(end, Completed), end
                    ended[name] = clock()
            if not worked:
                wakes = [
                    wake for wake in (scheduler.wake_s(), waiting[0].at_s if waiting else None) if wake is not None
                ]
                clock.skip_to(min(wakes, default=clock()))
        finisher.close(1.0)
        latencies = [ended[one.request.request_id] - one.at_s for one in trace]
        return Result(len(trace) / max(ended.values()), latencies)

    def _runner(
        self, ledger: Ledger, clock: VirtualClock, counters: Counters, finisher: Finisher
    ) -> tuple[Any, Callable[[], bool]]:
        policy = SchedulerPolicy(max_rows=self.max_rows)
        if self.mode == "step":
            steps = StepScheduler(policy)
            runner = StepRunner(self.adapter, ledger, steps, counters, Pace(), clock, "bench", finisher)
            return steps, runner.work
        batches = Scheduler(policy)
        runs = BatchRunner(self.adapter, ledger, batches, counters, Pace(), clock, lambda: None, finisher)
        return batches, runs.work


def make_trace(kind: str, num_requests: int, serial_s: float, seed: int, sizes: Sequence[int]) -> list[Arrival]:
    """`saturated`: all at once, 10 to 50 steps; `poisson`: at 3 times what one by one can do; `burst`: equals."""
    draw = random.Random(seed)
    at_s, trace = 0.0, []
    for index in range(num_requests):
        if kind == "poisson":
            at_s += draw.expovariate(3 / serial_s)
        mixed = kind != "burst"
        size = draw.choice(sizes) if mixed else sizes[0]
        params = SamplingParams(
            height=size,
            width=size,
            seed=draw.randrange(1000),
            num_inference_steps=draw.randint(10, 50) if mixed else 20,
            guidance_scale=5.0,
            num_frames=5,
        )
        trace.append(Arrival(at_s, DiffusionRequest(request_id=str(index), prompt=draw.choice(PROMPTS), params=params)))
    return trace


def loaded(folder: Path, mode: Any, pipeline_class: type | None = None) -> Any:
    """An adapter for that mode with the pipeline of the folder."""
    from engine.adapters.stepwise import StepPipeline
    from engine.adapters.whole import WholePipeline

    kind = StepPipeline if mode == "step" else WholePipeline
    made = kind(
        EngineConfig(
            model=str(folder),
            mode=mode,
            num_threads=1,
            dtype="float32",
            device="cpu",
            pipeline_class=pipeline_class,
        )
    )
    made.load()
    return made


def sides(folder: Path, max_rows: int, pipeline_class: type | None = None) -> dict[str, Side]:
    """One by one, request mode, step mode; the modes have each a pipeline of their own."""
    whole = loaded(folder, "request", pipeline_class)
    return {
        "one by one": Side(whole, "request", 1),
        "request": Side(whole, "request", max_rows),
        "step": Side(loaded(folder, "step", pipeline_class), "step", max_rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default="stable_diffusion")
    parser.add_argument("--trace", default="saturated", choices=["saturated", "poisson", "burst"])
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    from bench.pipelines import CLASSES, SIZES, build

    with tempfile.TemporaryDirectory(prefix="safelight-bench-") as folder:
        build(options.family).save_pretrained(folder)
        served = sides(Path(folder), options.rows, CLASSES.get(options.family))
        sizes = SIZES[options.family]
        warm = make_trace("burst", 2, 1.0, 0, sizes)
        for side in served.values():
            side.replay(warm)
        results: dict[str, list[Result]] = {name: [] for name in served}
        for number in range(options.rounds):
            serial_s = 1.0
            if options.trace == "poisson":
                saturated = make_trace("saturated", options.requests // 2, 1.0, number, sizes)
                serial_s = 1 / served["one by one"].replay(saturated).throughput
            trace = make_trace(options.trace, options.requests, serial_s, number, sizes)
            for name, side in served.items():
                results[name].append(side.replay(trace))
                last = results[name][-1]
                print(f"round {number + 1}: {name}: {last.throughput:.2f}/s, p95 {last.p95:.2f} s", flush=True)

    print(f"\n{options.family}, {options.trace}, {options.requests} requests, {options.rows} rows\n")
    print("| ratio | throughput | mean latency | p95 latency |\n| --- | --- | --- | --- |")
    for one, other in (("step", "one by one"), ("step", "request"), ("request", "one by one")):
        pairs = list(zip(results[one], results[other], strict=True))
        columns = (
            [a.throughput / b.throughput for a, b in pairs],
            [a.mean / b.mean for a, b in pairs],
            [a.p95 / b.p95 for a, b in pairs],
        )
        print(f"| {one} / {other} | " + " | ".join(spread(column) for column in columns) + " |")


if __name__ == "__main__":
    main()

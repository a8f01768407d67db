"""Traces through scheduling policies on a device of arithmetic: what each makes of the same arrivals. Pure.

The schedulers are the engine's own; the anchor's rule stands beside them, and a bound that no policy can beat.
"""

from __future__ import annotations

import heapq
import statistics
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from bench.arrivals import Arrival
from bench.report import quantile
from engine import DiffusionRequest, SamplingParams
from engine.scheduler import Scheduler, SchedulerPolicy
from engine.step_scheduler import StepScheduler
from engine.testing import FakeAdapter

_keys = FakeAdapter()


@dataclass(frozen=True, slots=True)
class Device:
    """Seconds of a step: a fixed part, which a batch shares, and one for each row, by its pixels."""

    fixed_s: float = 0.020
    row_s: float = 0.008
    max_rows: int = 8

    def step_s(self, size: int, rows: int) -> float:
        return self.fixed_s + rows * self.row_s * (size / 512) ** 2

    def alone_s(self, arrival: Arrival) -> float:
        return arrival.steps * self.step_s(arrival.size, 1)

    def shared_s(self, arrival: Arrival) -> float:
        """Its share of the device in a full batch: no schedule spends less on it."""
        return arrival.steps * self.step_s(arrival.size, self.max_rows) / self.max_rows


@dataclass(slots=True)
class Run:
    """What became of a trace: end of each arrival by name, and rows of each step that the device made."""

    ends: dict[str, float] = field(default_factory=dict)
    waves: list[int] = field(default_factory=list)
    busy_s: float = 0.0

    def note(self, steps: int, rows: int, step_s: float) -> float:
        """The time that they took."""
        self.waves += [rows] * steps
        self.busy_s += steps * step_s
        return steps * step_s


@dataclass(frozen=True, slots=True)
class Score:
    rows_per_wave: float
    mean_s: float
    p95_s: float
    busy_s: float


def score(trace: Sequence[Arrival], run: Run) -> Score:
    latencies = [run.ends[one.name] - one.at_s for one in trace]
    rows = statistics.fmean(run.waves)
    return Score(rows, statistics.fmean(latencies), quantile(latencies, 0.95), run.busy_s)


def first_come(trace: Sequence[Arrival], device: Device) -> Run:
    """The anchor's rule: the head of the queue and those right behind it that equal it; the first other one ends it."""
    run, now, queue, coming = Run(), 0.0, deque[Arrival](), deque(trace)
    while queue or coming:
        now = now if queue else max(now, coming[0].at_s)
        while coming and coming[0].at_s <= now:
            queue.append(coming.popleft())
        batch = [queue.popleft()]
        while queue and len(batch) < device.max_rows and _call(queue[0]) == _call(batch[0]):
            batch.append(queue.popleft())
        now += run.note(batch[0].steps, len(batch), device.step_s(batch[0].size, len(batch)))
        run.ends |= {one.name: now for one in batch}
    return run


def _call(one: Arrival) -> Hashable:
    return one.size, one.steps, one.guidance


def whole_calls(trace: Sequence[Arrival], device: Device) -> Run:
    """Ours in request mode."""
    run, now, coming = Run(), 0.0, deque(trace)
    scheduler = Scheduler(SchedulerPolicy(max_rows=device.max_rows))
    while len(run.ends) < len(trace):
        now = _admit(scheduler, coming, now)
        batch = scheduler.plan(now)
        if batch is None:
            wakes = [scheduler.wake_s(), coming[0].at_s if coming else None]
            now = max(now, min(wake for wake in wakes if wake is not None))
            continue
        rows = len(batch.rows)
        now += run.note(batch.key.num_steps, rows, device.step_s(batch.key.height, rows))
        run.ends |= {request.request_id: now for request in batch.requests}
    return run


def single_steps(trace: Sequence[Arrival], device: Device) -> Run:
    """Ours in step mode. Encoding and decoding take no time here, as in the other policies."""
    run, now, coming = Run(), 0.0, deque(trace)
    scheduler = StepScheduler(SchedulerPolicy(max_rows=device.max_rows))
    while len(run.ends) < len(trace):
        if not scheduler.running and not scheduler.waiting_rows and coming:
            now = max(now, coming[0].at_s)
        now = _admit(scheduler, coming, now)
        for slot in scheduler.join():
            params = slot.request.params
            slot.stage, slot.key = "denoising", (params.height, slot.entry.key.guided)
        group = scheduler.choose()
        now += run.note(1, len(group), device.step_s(group[0].request.params.height, len(group)))
        for slot in group:
            slot.left -= 1
            if not slot.left:
                scheduler.leave(slot)
                run.ends[slot.request.request_id] = now
    return run


def _admit(scheduler: Scheduler | StepScheduler, coming: deque[Arrival], now: float) -> float:
    while coming and coming[0].at_s <= now:
        one = coming.popleft()
        params = SamplingParams(
            height=one.size, width=one.size, num_inference_steps=one.steps, guidance_scale=one.guidance, seed=0
        )
        request = DiffusionRequest(request_id=one.name, prompt="a", params=params)
        scheduler.submit(request, _keys.batch_key(request), one.at_s)
    return now


def least_mean_s(trace: Sequence[Arrival], device: Device) -> float:
    """No policy has a smaller mean latency, though it knew all arrivals before.

    Each row-step costs the device at least its share of a full batch, so any schedule is one of a single machine with
    these processing times, where shortest remaining time first is best. And nobody is quicker than alone.
    """
    ends = shortest_first([(one.at_s, device.shared_s(one)) for one in trace])
    shared = statistics.fmean(end - one.at_s for end, one in zip(ends, trace, strict=True))
    return max(shared, statistics.fmean(device.alone_s(one) for one in trace))


def least_p95_s(trace: Sequence[Arrival], device: Device) -> float:
    """Nobody is quicker than alone."""
    return quantile([device.alone_s(one) for one in trace], 0.95)


def shortest_first(jobs: Sequence[tuple[float, float]]) -> list[float]:
    """Ends of (arrival, work) on one machine that always serves whoever has least left."""
    ends, now, ready = [0.0] * len(jobs), 0.0, list[tuple[float, int]]()
    coming = deque(sorted(range(len(jobs)), key=lambda k: jobs[k][0]))
    while ready or coming:
        if not ready:
            now = max(now, jobs[coming[0]][0])
        while coming and jobs[coming[0]][0] <= now:
            number = coming.popleft()
            heapq.heappush(ready, (jobs[number][1], number))
        work, number = heapq.heappop(ready)
        until = jobs[coming[0]][0] if coming else float("inf")
        if now + work <= until:
            now += work
            ends[number] = now
        else:
            heapq.heappush(ready, (work - (until - now), number))
            now = until
    return ends


POLICIES: dict[str, Callable[[Sequence[Arrival], Device], Run]] = {
    "first come, first served (anchor)": first_come,
    "ours, whole calls": whole_calls,
    "ours, single steps": single_steps,
}

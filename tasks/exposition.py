"""What the store and the workers know, as families of Prometheus. Needs prometheus-client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from tasks.metric_catalogue import BY_NAME
from tasks.store import QueueStats, Totals
from tasks.tally import BOUNDS_S, Distribution

Info = Mapping[str, Any]
Samples = Iterable[tuple[Sequence[str], float]]
Times = Iterable[tuple[Sequence[str], Distribution]]
_PRIORITIES = range(10)


class Figures:
    """A collector of prometheus-client: gives out what was set last."""

    def __init__(self) -> None:
        self.families: Sequence[Metric] = ()

    def collect(self) -> Iterator[Metric]:
        yield from self.families


def _plain(name: str, samples: Samples) -> Metric:
    spec = BY_NAME[name]
    make = CounterMetricFamily if spec.kind == "counter" else GaugeMetricFamily
    family = make(spec.name.removesuffix("_total"), spec.meaning, labels=spec.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _histogram(name: str, bounds: Sequence[float], times: Times) -> Metric:
    spec = BY_NAME[name]
    family = HistogramMetricFamily(spec.name, spec.meaning, labels=spec.labels)
    ends = [*(f"{float(bound)}" for bound in bounds), "+Inf"]
    for labels, found in times:
        buckets = list(zip(ends, map(float, accumulate(found.counts)), strict=True))
        family.add_metric(labels, buckets, sum_value=found.total)
    return family


def queue_families(queues: Sequence[QueueStats]) -> Iterator[Metric]:
    live = [((queue.model, status), count) for queue in queues for status, count in _live(queue)]
    yield _plain("safelight_jobs", live)
    waiting = {(queue.model, one.priority): one for queue in queues for one in queue.priorities}
    places = [(queue.model, priority) for queue in queues for priority in _PRIORITIES]
    num_jobs = [waiting[place].queued if place in waiting else 0 for place in places]
    oldest_s = [waiting[place].oldest_s if place in waiting else 0.0 for place in places]
    labels = [(model, str(priority)) for model, priority in places]
    yield _plain("safelight_queue_jobs", zip(labels, num_jobs, strict=True))
    yield _plain("safelight_queue_oldest_seconds", zip(labels, oldest_s, strict=True))


def tenant_families(tenants: Sequence[Info]) -> Iterator[Metric]:
    """Of `standings`; none without tenants, whose number is the caller's care."""
    states = ("queued", "running")
    rows = [((one["tenant"], status), one[f"{status}_rows"]) for one in tenants for status in states]
    yield _plain("safelight_tenant_rows", rows)


def _live(queue: QueueStats) -> tuple[tuple[str, int], tuple[str, int]]:
    return ("queued", queue.queued), ("running", queue.running)


#: Counters of the store, and how many labels follow the model.
_COUNTERS = {
    "created": ("safelight_jobs_created_total", 0),
    "ended": ("safelight_jobs_ended_total", 2),
    "attempts": ("safelight_attempts_total", 0),
    "retried": ("safelight_retries_total", 1),
    "given_back": ("safelight_attempts_given_back_total", 0),
    "lost": ("safelight_leases_lost_total", 0),
}


def total_families(totals: Totals) -> Iterator[Metric]:
    tally = totals.tally
    for what, (name, num_labels) in _COUNTERS.items():
        counts = tally.counts(what)
        yield _plain(name, (((c.model, *c.labels, *[""] * (num_labels - len(c.labels))), c.value) for c in counts))
    yield _plain("safelight_device_seconds_total", (((model,), seconds) for model, seconds in tally.device_seconds()))
    stages = (((model, stage), times) for model, stage, times in tally.stage_times())
    yield _histogram("safelight_stage_seconds", BOUNDS_S, stages)
    yield _histogram("safelight_job_seconds", BOUNDS_S, (((model,), times) for model, times in tally.job_times()))
    yield _plain("safelight_webhooks_waiting", [((), totals.webhooks_waiting)])
    yield _plain("safelight_webhooks_dead", [((), totals.webhooks_dead)])
    yield _plain("safelight_dead_letters", [((), totals.dead_letters)])


def worker_families(infos: Sequence[Info]) -> Iterator[Metric]:
    """By what the workers' beats say. Two workers of one host are told apart by their process."""
    hosts = Counter(info.get("host", "?") for info in infos)
    named = [(_name(info, hosts), info) for info in infos]
    models = [((name, model), told) for name, info in named for model, told in info.get("models", {}).items()]
    engines = [(labels, told) for labels, told in models if "figures" in told]
    yield _plain("safelight_worker_jobs", (((name, i.get("state", "?")), i.get("jobs", 0)) for name, i in named))
    states = ("running", "waiting")
    rows = (((*labels, state), told[f"{state}_rows"]) for labels, told in engines for state in states)
    yield _plain("safelight_worker_rows", rows)
    for name, key in (("safelight_step_seconds", "step_seconds"), ("safelight_batch_rows", "batch_rows")):
        figures = [(labels, told["figures"][key]) for labels, told in engines]
        bounds = figures[0][1]["bounds"] if figures else BOUNDS_S
        yield _histogram(name, bounds, ((labels, _distribution(figure)) for labels, figure in figures))
    yield _plain("safelight_rows_done_total", ((labels, told["rows_done"]) for labels, told in engines))
    memories = [(labels, told["memory"]) for labels, told in engines if told.get("memory")]
    for part in ("used", "free"):
        name = f"safelight_device_memory_{part}_bytes"
        yield _plain(name, ((labels, memory[f"{part}_bytes"]) for labels, memory in memories))
    places = [(labels, told) for labels, told in models if "loads" in told]
    yield _plain("safelight_model_loaded", ((labels, int(told["state"] == "loaded")) for labels, told in places))
    yield _plain("safelight_model_loads_total", ((labels, told["loads"]) for labels, told in places))
    yield _plain("safelight_model_need_bytes", ((labels, told["need_bytes"]) for labels, told in places))
    uploads = [((name,), info["uploads"]) for name, info in named if "uploads" in info]
    times = ((labels, _distribution(told["seconds"])) for labels, told in uploads)
    yield _histogram("safelight_upload_seconds", BOUNDS_S, times)
    failures = (((*labels, how), n) for labels, told in uploads for how, n in told["failures"].items())
    yield _plain("safelight_upload_failures_total", failures)


def _name(info: Info, hosts: Mapping[str, int]) -> str:
    host = str(info.get("host", "?"))
    return host if hosts[host] == 1 else f"{host}:{info.get('pid', '?')}"


def _distribution(figure: Mapping[str, Any]) -> Distribution:
    return Distribution(tuple(figure["counts"]), figure["sum"])

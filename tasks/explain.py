"""Why a job waits, with whom it ran and what it cost, in words that hold. Pure: it judges one look at the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from tasks.beats import silent_s
from tasks.job import Batching, JobMetrics, JobStatus
from tasks.request import GenerationRequest
from tasks.store import JobFacts

CRASHES_TO_SOLO = 2
Code = Literal[
    "abort_wanted",
    "no_worker",
    "worker_starting",
    "model_not_served",
    "model_not_loaded",
    "model_loading",
    "model_out",
    "worker_draining",
    "store_away",
    "waits_for_store",
    "quarantined",
    "at_limit",
    "jobs_ahead",
    "rows_busy",
    "message_under_way",
    "after_failure",
    "worker_silent",
    "waits_for_batch",
    "runs_alone",
    "differs",
    "ended",
]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Reason(_Record):
    #: For programs; `message` is for people.
    code: Code
    message: str


class RunningRows(_Record):
    """Rows of the job's model that are under way on one worker and alike in all that they must share."""

    worker: str
    rows: int
    #: Parameters in which the job differs from them, as far as its request tells; empty: it could share with them.
    differs_in: tuple[str, ...]


class Explanation(_Record):
    job_id: str
    status: JobStatus
    #: Why it is not done yet, the weightiest first; of an ended job, how it ended.
    reasons: tuple[Reason, ...]
    queue_position: int | None
    eta_s: float | None
    #: What runs of its model while it waits or runs.
    running: tuple[RunningRows, ...]
    #: With whom its last attempt shared the device; None before it ended, or if it never ran.
    batching: Batching | None
    device_seconds: float | None
    metrics: JobMetrics
    #: What was changed in its input.
    changed: tuple[str, ...]
    #: Attempts so far, and those of them that ended by a lost worker.
    attempts: int
    crashes: int

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


def explain(facts: JobFacts) -> Explanation:
    job = facts.job
    running = () if job.status.is_terminal else tuple(_running(facts))
    return Explanation(
        job_id=job.id,
        status=job.status,
        reasons=tuple(_reasons(facts, running)),
        queue_position=job.progress.queue_position,
        eta_s=job.progress.eta_s,
        running=running,
        batching=facts.batching,
        device_seconds=job.metrics.device_seconds,
        metrics=job.metrics,
        changed=job.warnings,
        attempts=job.attempt,
        crashes=facts.crashes + facts.solo_crashes,
    )


def _reasons(facts: JobFacts, running: tuple[RunningRows, ...]) -> Iterator[Reason]:
    job = facts.job
    if job.status.is_terminal:
        yield from _how_it_ended(facts)
        return
    if facts.abort_wanted:
        yield Reason(code="abort_wanted", message="somebody asked for its end; it ends at its next step")
    if job.status is JobStatus.QUEUED:
        yield from _why_nobody_takes_it(facts)
    else:
        yield from _what_its_worker_does(facts)
    if facts.crashes >= CRASHES_TO_SOLO:
        message = f"{facts.crashes} workers were lost while they ran it with others: it runs alone, on an empty worker"
        yield Reason(code="quarantined", message=message)
    elif job.request.exact:
        yield Reason(code="runs_alone", message="it asks for exact: its rows share with nobody")
    else:
        yield from _differences(running)
    if job.errors:
        last = job.errors[-1]
        yield Reason(code="after_failure", message=f"attempt {last.attempt} ended with {last.type}: {last.message}")


def _why_nobody_takes_it(facts: JobFacts) -> Iterator[Reason]:
    model, position = facts.job.request.model, facts.job.progress.queue_position or 0
    serving = [info for info in facts.workers if model in info.get("models", {})]
    ready = [info for info in serving if info.get("state") == "ready"]
    if not ready:
        yield _nobody_is_ready(facts, serving)
        return
    if facts.held_by is not None:
        yield Reason(code="at_limit", message=f"it waits for rows of its own: {facts.held_by}")
    if all(_backlog(info).get("full") for info in ready):
        waiting = sum(_backlog(info).get("waiting", 0) for info in ready)
        message = f"the object store is away, and {_some(waiting, 'finished job')} wait for it: no worker takes more"
        yield Reason(code="store_away", message=message)
        return
    if all(info["models"][model].get("state", "loaded") != "loaded" for info in ready):
        yield _not_in_memory(model, ready)
        return
    told = [info["models"][model].get("speed") or {} for info in ready]
    busy, room = (sum(speed.get(name, 0) for speed in told) for name in ("busy_rows", "max_rows"))
    if position:
        yield Reason(code="jobs_ahead", message=f"before it in line: {_some(position, 'job')} of model {model}")
    if room and busy >= room:
        yield Reason(
            code="rows_busy", message=f"all rows ({room}) of {_some(len(ready), 'worker')} are taken ({busy} in hand)"
        )
    elif not position and facts.held_by is None:
        yield Reason(code="message_under_way", message="it is next and rows are free: a worker is about to take it")


def _not_in_memory(model: str | None, ready: list[Mapping[str, Any]]) -> Reason:
    places = [info["models"][model] for info in ready]
    if trouble := next((place["trouble"] for place in places if place.get("trouble")), None):
        return Reason(code="model_not_loaded", message=f"model {model} could not be loaded: {trouble}")
    if any(place["state"] == "loading" for place in places):
        return Reason(code="model_loading", message=f"a worker is loading model {model}")
    message = f"model {model} is in no worker's memory: it waits until another model there has had its turn"
    return Reason(code="model_out", message=message)


def _what_its_worker_does(facts: JobFacts) -> Iterator[Reason]:
    job = facts.job
    if (late_s := max((silent_s(info) or 0.0 for info in facts.workers if info["name"] == job.worker), default=0)) > 0:
        message = f"nothing was heard of worker {job.worker} for {late_s:.0f} s: if it is lost, the job is queued again"
        yield Reason(code="worker_silent", message=message)
    if job.progress.stage == "uploading":
        yield from _why_it_is_not_stored(facts)
    elif job.progress.stage in ("queued", "loading", "encoding"):
        message = f"worker {job.worker} has it: inputs, texts, or a place in a batch"
        yield Reason(code="waits_for_batch", message=message)


def _why_it_is_not_stored(facts: JobFacts) -> Iterator[Reason]:
    away_s = max(
        (_backlog(info).get("away_s", 0.0) for info in facts.workers if info["name"] == facts.job.worker), default=0
    )
    if away_s:
        message = f"its outputs are done; the object store does not take them, for {away_s:.0f} s now"
        yield Reason(code="waits_for_store", message=message)


def _some(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _backlog(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a beat tells of finished jobs that wait for the object store."""
    uploads: Mapping[str, Any] = info.get("uploads", {})
    return uploads


def _nobody_is_ready(facts: JobFacts, serving: list[Mapping[str, Any]]) -> Reason:
    model = facts.job.request.model
    states = {info.get("state") for info in serving}
    if "starting" in states:
        return Reason(code="worker_starting", message=f"a worker is loading model {model}")
    if "draining" in states:
        return Reason(code="worker_draining", message=f"every worker that serves model {model} is stopping")
    if facts.workers:
        return Reason(
            code="model_not_served", message=f"up: {_some(len(facts.workers), 'worker')}, and none has model {model}"
        )
    return Reason(code="no_worker", message="no worker is up")


def _differences(running: tuple[RunningRows, ...]) -> Iterator[Reason]:
    apart = {name for group in running for name in group.differs_in}
    if running and apart and all(group.differs_in for group in running):
        message = f"it can share with nothing that runs now: it differs in {', '.join(sorted(apart))}"
        yield Reason(code="differs", message=message)


def _how_it_ended(facts: JobFacts) -> Iterator[Reason]:
    job, batching = facts.job, facts.batching
    if job.error is not None:
        yield Reason(code="ended", message=f"it failed with {job.error.type}: {job.error.message}")
    else:
        yield Reason(code="ended", message=f"it {'was aborted' if job.status is JobStatus.ABORTED else job.status}")
    if batching is not None and batching.apart:
        message = f"others were there and could not share with it: they differed in {', '.join(batching.apart)}"
        yield Reason(code="differs", message=message)


def _running(facts: JobFacts) -> Iterator[RunningRows]:
    wish = _wish(facts.job.request)
    for info in facts.workers:
        for group in info.get("models", {}).get(facts.job.request.model, {}).get("running", ()):
            differs = [name for name in wish if name in group["key"] and wish[name] != group["key"][name]]
            name, rows = info.get("name", "?"), group["rows"]
            yield RunningRows(worker=name, rows=rows, differs_in=tuple(_PLAIN.get(each, each) for each in differs))


#: Names of the engine's own, as a producer knows them.
_PLAIN = {"guided": "guidance_scale"}


def _wish(request: GenerationRequest) -> dict[str, Any]:
    """What the request itself says of what rows must share. What it leaves to the pipeline is not known here."""
    said = request.model_dump(
        mode="json",
        include={
            "height", "width", "num_inference_steps", "guidance_scale", "noise_scheduler", "strength", "num_frames",
            "fps", "duration_s",
        },
        exclude_none=True,
    )  # fmt: skip
    loras = [[lora.name, lora.scale] for lora in request.loras]
    return said | {"loras": loras, "guided": (request.guidance_scale or 0.0) > 1.0}


def lines(explanation: Explanation) -> Iterator[str]:
    """For a terminal."""
    yield f"{explanation.job_id}  {explanation.status}"
    for reason in explanation.reasons:
        if reason.code != "ended" or explanation.status is JobStatus.FAILED:  # the line above says it
            yield f"  {reason.message}"
    if explanation.queue_position is not None:
        yield f"  position in its queue: {explanation.queue_position}"
    if not explanation.status.is_terminal:
        eta_s = explanation.eta_s
        yield "  until the result: nobody can tell yet" if eta_s is None else f"  until the result: about {eta_s:.1f} s"
    for group in explanation.running:
        shares = "it could share with" if not group.differs_in else f"differ in {', '.join(group.differs_in)}"
        if not group.differs_in and explanation.status is JobStatus.RUNNING:
            shares = "can share a forward, its own among them"
        yield f"  {group.worker}: rows under way that {shares}: {group.rows}"
    if (batching := explanation.batching) is not None:
        rows = f"{batching.rows_mean:.1f} rows on average, {batching.rows_max} at most"
        yield f"  in each forward: {rows}, its own among them"
        if batching.mates:
            yield f"  with {', '.join(batching.mates)}"
    if explanation.device_seconds is not None:
        yield f"  charged: {explanation.device_seconds:.3f} device seconds"
    for change in explanation.changed:
        yield f"  changed in its input: {change}"

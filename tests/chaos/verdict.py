"""Counts what a run came to: each rule is a function of the evidence that yields what breaks it."""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image

from tasks.job import TERMINAL
from tests.chaos.evidence import Stored
from tests.chaos.plan import LEASE_S, STEPWISE, PlannedJob
from tests.chaos.receiver import Told
from tests.chaos.shares import beyond_limits
from tests.chaos.story import Evidence, Life, lives

#: A lease that the witness saw may be renewed by rounding; a step that was in the device may still come out.
_GRACE_MS = 400.0
_ENDS = {status.value for status in TERMINAL}


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    job_id: str
    what: str


def violations(evidence: Evidence) -> list[Violation]:
    return [Violation(name, job_id, what) for name, rule in RULES.items() for job_id, what in rule(evidence)]


Found = Iterator[tuple[str, str]]


def _answers(evidence: Evidence) -> Found:
    for ticket in evidence.tickets:
        name = ticket.planned.name
        yield from ((name, wrong) for wrong in ticket.wrong)
        owned = {job_id for job_id, owner in evidence.by_id.items() if owner is ticket}
        if len(owned) > 1:
            yield name, f"one key, several jobs: {sorted(owned)}"


def _lost(evidence: Evidence) -> Found:
    for job_id in evidence.accepted:
        if evidence.status(job_id) not in _ENDS:
            yield job_id, f"is {evidence.status(job_id)} after all is quiet"
    for job_id in set(evidence.stored.records) - set(evidence.by_id):
        yield job_id, "a record that nobody asked for"


def _one_end(evidence: Evidence) -> Found:
    for job_id in evidence.accepted:
        record, moves = evidence.record(job_id), evidence.moves.get(job_id, [])
        ends = [move.status for move in moves if move.type == "status" and move.status in _ENDS]
        dones = [move.status for move in moves if move.type == "done"]
        if not ends == dones == [record.get("status")]:
            yield job_id, f"ended as {ends}, said {dones}, is {record.get('status')}"
        if (first := evidence.ended.get(job_id)) and first != record:
            changed = {name for name in {*first, *record} if first.get(name) != record.get(name)}
            yield job_id, f"changed after its end: {sorted(changed)}"
        places = [name for name, ids in evidence.stored.live_indexes.items() if job_id in ids]
        if places and record.get("status") in _ENDS:
            yield job_id, f"ended, and still in {places}"
        kept = [status for status, ids in evidence.stored.statuses.items() if job_id in ids]
        if kept != [record.get("status")]:
            yield job_id, f"listed as {kept}"


def _outcome(evidence: Evidence) -> Found:
    """Nobody's fault fails a job, and only what was asked to end is aborted."""
    for job_id, ticket in evidence.by_id.items():
        record, planned = evidence.record(job_id), ticket.planned
        status, error = record.get("status"), json.loads(record.get("error", "null"))
        if status == "aborted" and not planned.may_be_aborted:
            yield job_id, "aborted, and nobody asked"
        if status == "failed" and not (error["type"] == "deadline_exceeded" and "deadline_s" in planned.body):
            yield job_id, f"failed: {error}"
        if status != "succeeded" and record.get("outputs"):
            yield job_id, f"{status}, with outputs"


def expected_pixels(body: dict[str, object], index: int) -> bytes:
    """The fake model's picture, computed anew from its definition."""
    seed = int(body["seed"]) + index  # type: ignore[call-overload]
    latents = np.random.default_rng(seed).random((body["height"], body["width"], 3))  # type: ignore[call-overload]
    text = repr((body["prompt"], None, body["guidance_scale"], None))
    colour = np.frombuffer(hashlib.sha256(text.encode()).digest()[:3], np.uint8).astype(np.float64) / 255
    for _ in range(int(body["num_inference_steps"])):  # type: ignore[call-overload]
        latents = 0.75 * latents + 0.25 * colour
    return np.asarray((latents * 255).round(), np.uint8).tobytes()


def _pictures(evidence: Evidence) -> Found:
    for job_id, ticket in evidence.by_id.items():
        record = evidence.record(job_id)
        if record.get("status") == "succeeded":
            yield from ((job_id, wrong) for wrong in _wrong_outputs(evidence.stored, job_id, record, ticket.planned))


def _wrong_outputs(stored: Stored, job_id: str, record: dict[str, str], planned: PlannedJob) -> Iterator[str]:
    outputs, attempt = json.loads(record.get("outputs", "[]")), record["attempt"]
    if len(outputs) != planned.body["num_outputs"]:
        yield f"{len(outputs)} outputs of {planned.body['num_outputs']}"
    guidance = json.loads(record["request"])["guidance_scale"]
    for index, output in enumerate(outputs):
        key = output["uri"].split("/", 3)[3]
        if f"{job_id}/{attempt}/{index}.png" not in key:
            yield f"attempt {attempt} succeeded, its output {index} is {key}"
        body = stored.objects.get(key)
        if body is None:
            yield f"no object {key}"
        elif hashlib.sha256(body).hexdigest() != output["sha256"] or len(body) != output["size_bytes"]:
            yield f"{key} has other bytes than its record says"
        else:
            pixels = Image.open(io.BytesIO(body)).convert("RGB").tobytes()
            if pixels != expected_pixels({**planned.body, "guidance_scale": guidance}, index):
                yield f"{key} is not the picture of seed {planned.body['seed']} + {index}"


def _fenced(evidence: Evidence) -> Found:
    """What the record says of the run is of the attempt that ended it."""
    for job_id in evidence.accepted:
        record = evidence.record(job_id)
        claims = [move for move in evidence.moves.get(job_id, []) if move.type == "status" and move.status == "running"]
        claims = [move for move in claims if not move.is_wish]
        numbers = [move.attempt for move in claims]
        if numbers != list(range(1, len(numbers) + 1)) or len(numbers) != int(record.get("attempt", 0)):
            yield job_id, f"attempts {numbers}, and the record says {record.get('attempt')}"
        if record.get("status") == "succeeded" and claims and record.get("worker") != claims[-1].worker:
            yield job_id, f"attempt {numbers[-1]} ran on {claims[-1].worker}, the record says {record.get('worker')}"


def _ran_twice(evidence: Evidence) -> Found:
    for job_id in evidence.accepted:
        found = lives(evidence, job_id)
        steps = evidence.steps.get(job_id, ())
        for life in found:
            mine = [step for step in steps if step.attempt == life.number]
            if strangers := {step.pid for step in mine} - {life.pid}:
                yield job_id, f"attempt {life.number} of {life.worker} ran in {sorted(strangers)}"
            repeated = [key for key, n in Counter((step.row, step.step) for step in mine).items() if n > 1]
            if repeated:
                yield job_id, f"attempt {life.number} did steps twice: {repeated[:3]}"
            late = [step for step in mine if step.at_ms > life.ended_ms + _GRACE_MS]
            # In request mode a row that has left is still in the pipeline call of its mates, for nobody.
            if late and not life.lapsed and evidence.record(job_id)["model"] == STEPWISE:
                yield job_id, f"attempt {life.number} went on after the store had ended it"
            early = [step for step in mine if step.at_ms < life.began_ms - _GRACE_MS]
            if early:
                yield job_id, f"attempt {life.number} began before its claim"
            if life.lapsed and (alive := _lease_alive(evidence.leases.get(job_id, set()), life)):
                yield job_id, f"attempt {life.number} was ended {alive} ms before its lease"
        if extra := {step.attempt for step in steps} - {life.number for life in found}:
            yield job_id, f"attempts that were never claimed: {sorted(extra)}"


def _lease_alive(ends_ms: set[int], life: Life) -> float:
    """How much of a lease that the witness saw was left when the attempt was declared lost; 0: none."""
    lease_ms = int(LEASE_S * 1000)
    of_this = [end for end in ends_ms if life.began_ms <= end - lease_ms <= life.ended_ms]
    return max(0.0, max(of_this, default=0) - life.ended_ms)


def _webhooks(evidence: Evidence) -> Found:
    told: dict[str, list[Told]] = {}
    for each in evidence.told:
        told.setdefault(each.job_id, []).append(each)
    for job_id, ticket in evidence.by_id.items():
        mine, status = told.get(job_id, []), evidence.status(job_id)
        if "webhook_url" in ticket.planned.body and status in _ENDS:
            if not any(each.was_taken for each in mine):
                yield job_id, f"its webhook was never told ({len(mine)} tries)"
            if len({each.message_id for each in mine}) > 1:
                yield job_id, "its webhook was told under several ids"
            if {each.status for each in mine} - {status}:
                yield job_id, f"its webhook was told {[each.status for each in mine]}, it is {status}"
        elif mine:
            yield job_id, "has no webhook, or no end, and one was told"


def _books(evidence: Evidence) -> Found:
    """What is counted for limits and turns is counted for jobs that live."""
    yield from ((name, "is left over") for name in evidence.stored.books)


RULES = {
    "each answer is right, one job a key": _answers,
    "accepted, ended": _lost,
    "exactly one end, which stays": _one_end,
    "the end that was asked for": _outcome,
    "every object, bytes and pixels": _pictures,
    "no write of an old attempt": _fenced,
    "no run beside a live lease": _ran_twice,
    "no turn beyond a tenant's or group's limit": beyond_limits,
    "no row counted that is not there": _books,
    "webhooks told, one id, right status": _webhooks,
}

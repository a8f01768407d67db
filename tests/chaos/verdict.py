"""Counts what a run came to: each rule is a function of the evidence that yields what breaks it."""

from __future__ import annotations

import hashlib
import io
import json
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from tasks.job import TERMINAL
from tests.chaos.evidence import Step, Stored
from tests.chaos.plan import LEASE_S, STEPWISE, PlannedJob
from tests.chaos.processes import Death
from tests.chaos.producers import Ticket
from tests.chaos.receiver import Told
from tests.chaos.witness import Move

#: A lease that the witness saw may be renewed by rounding; a step that was in the device may still come out.
_GRACE_MS = 400.0
_ENDS = {status.value for status in TERMINAL}


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    job_id: str
    what: str


@dataclass
class Evidence:
    tickets: Sequence[Ticket]
    stored: Stored
    moves: dict[str, list[Move]]
    ended: dict[str, dict[str, str]]
    leases: dict[str, set[int]]
    steps: dict[str, Sequence[Step]]
    told: Sequence[Told]
    deaths: Sequence[Death]
    unfinished: bool
    by_id: dict[str, Ticket] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Whose job is which: by its id, by the key in Redis, by the answers."""
        for ticket in self.tickets:
            ids = set(ticket.ids)
            known = ticket.planned.name if ticket.planned.by_id else self.stored.keys.get(ticket.planned.name)
            if known in self.stored.records:
                ids.add(str(known))
            self.by_id |= dict.fromkeys(ids, ticket)

    @property
    def accepted(self) -> list[str]:
        return list(self.by_id)

    def record(self, job_id: str) -> dict[str, str]:
        return dict(self.stored.records.get(job_id, {}))

    def status(self, job_id: str) -> str:
        return self.record(job_id).get("status", "lost")


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


@dataclass(frozen=True, slots=True)
class Life:
    """An attempt by the store's word: when it was claimed and when it ended, and whether by a lapsed lease."""

    number: int
    began_ms: int
    ended_ms: float
    lapsed: bool
    worker: str | None


def lives(evidence: Evidence, job_id: str) -> list[Life]:
    lost = {
        error["attempt"]
        for error in json.loads("[" + evidence.record(job_id).get("errors", "") + "]")
        if error["type"] == "worker_lost"
    }
    moves = [move for move in evidence.moves.get(job_id, []) if move.type == "status" and not move.is_wish]
    found = []
    for at, move in enumerate(moves):
        if move.status == "running":
            ended_ms = moves[at + 1].at_ms if at + 1 < len(moves) else float("inf")
            found.append(Life(move.attempt, move.at_ms, ended_ms, move.attempt in lost, move.worker))
    return found


def _ran_twice(evidence: Evidence) -> Found:
    for job_id in evidence.accepted:
        found = lives(evidence, job_id)
        steps = evidence.steps.get(job_id, ())
        for life in found:
            mine = [step for step in steps if step.attempt == life.number]
            if len({step.pid for step in mine}) > 1:
                yield job_id, f"attempt {life.number} ran in two processes"
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


RULES = {
    "each answer is right, one job a key": _answers,
    "accepted, ended": _lost,
    "exactly one end, which stays": _one_end,
    "the end that was asked for": _outcome,
    "every object, bytes and pixels": _pictures,
    "no write of an old attempt": _fenced,
    "no run beside a live lease": _ran_twice,
    "webhooks told, one id, right status": _webhooks,
}


@dataclass(frozen=True, slots=True)
class Recovery:
    """Of a job whose worker was killed: ms from the death to being queued again, and to its next attempt."""

    job_id: str
    is_calm: bool
    requeued_ms: float
    restarted_ms: float | None


def recoveries(evidence: Evidence) -> list[Recovery]:
    found: list[Recovery] = []
    for death in evidence.deaths:
        for job_id in evidence.accepted:
            mine = lives(evidence, job_id)
            for at, life in enumerate(mine):
                is_its = life.worker is not None and f":{death.pid}:" in life.worker
                if is_its and life.lapsed and life.began_ms <= death.at_ms < life.ended_ms:
                    restarted_ms = mine[at + 1].began_ms - death.at_ms if at + 1 < len(mine) else None
                    found.append(Recovery(job_id, death.is_calm, life.ended_ms - death.at_ms, restarted_ms))
    return found


def spread_s(values: Sequence[float]) -> str:
    if not values:
        return "none"
    ranked = sorted(values)
    p95 = ranked[min(len(ranked) - 1, int(0.95 * len(ranked)))]
    return f"median {statistics.median(ranked) / 1000:.1f} s, p95 {p95 / 1000:.1f} s, n {len(ranked)}"


def p95_s(values: Sequence[float]) -> float:
    ranked = sorted(values) or [0.0]
    return ranked[min(len(ranked) - 1, int(0.95 * len(ranked)))] / 1000

"""Two workers and two jobs on a store: every action that can happen to them. Runs on any store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tasks.errors import SafelightError
from tasks.quotas import NO_QUOTAS, Limits, Quotas
from tasks.store import Claimed, Created, JobStore, Lease, NewJob, NotClaimed
from tasks.submission import new_job
from tests.contract.stores import LEASE_S, MODELS, Clock, failed, model_error, succeeded

WORKERS, JOBS, MODEL = ("v", "w"), ("a", "b"), "tiny"
MAX_ATTEMPTS = 2
Verb = Literal[
    "submit", "take", "claim", "wake", "renew", "tick", "reap", "finish", "finish unheard", "fail", "retry", "release",
    "isolate", "abort", "crash",
]  # fmt: skip


class Setup(NamedTuple):
    """Whose the jobs are, and how many rows may run at a time."""

    quotas: Quotas
    new: Mapping[str, NewJob]
    #: Whether turns may have to wait for rows to be free.
    is_limited: bool


#: Two jobs of one tenant, and two of two tenants in a group of which one may run.
ALIKE = Setup(NO_QUOTAS, {each: new_job({"prompt": "x", "seed": 7}, MODELS, job_id=each) for each in JOBS}, False)
LIMITED = Setup(
    Quotas(groups=Limits(max_running_rows=1)),
    {
        each: new_job({"prompt": "x", "seed": 7, "group": "g"}, MODELS, job_id=each, tenant=f"tenant-{each}")
        for each in JOBS
    },
    True,
)


class Action(NamedTuple):
    verb: Verb
    worker: str = ""
    job: str = ""


#: Everything that needs no attempt in hand. Workers `take`; `claim` is for outputs that lie in a spool.
_FREE = (
    *(Action(verb, job=job_id) for verb in ("submit", "abort") for job_id in JOBS),  # type: ignore[arg-type]
    *(Action("claim", worker, job_id) for worker in WORKERS for job_id in JOBS),
    *(Action("take", worker) for worker in WORKERS),
    Action("tick"),
    Action("reap"),
)
_OF_A_HOLDER: tuple[Verb, ...] = ("finish", "finish unheard", "fail", "retry", "release", "isolate")


@dataclass
class World:
    """A store, its clock, and which attempts each worker believes to hold, rightly or not."""

    store: JobStore
    clock: Clock
    setup: Setup = ALIKE
    held: dict[str, dict[str, int]] = field(default_factory=lambda: {worker: {} for worker in WORKERS})

    def actions(self) -> Iterator[Action]:
        yield from _FREE
        if self.setup.is_limited:
            yield Action("wake")
        for worker in WORKERS:
            if self.held[worker]:
                yield Action("renew", worker)
                yield Action("crash", worker)
            for job_id in self.held[worker]:
                yield from (Action(verb, worker, job_id) for verb in _OF_A_HOLDER)

    def do(self, action: Action) -> Any:
        """The store's answer, as something to compare."""
        verb, worker, job_id = action
        held = self.held.get(worker, {})
        if verb in _OF_A_HOLDER:
            return self._write(verb, held, job_id)
        match verb:
            case "submit":
                [answer] = self.store.create([self.setup.new[job_id]])
                return answer.is_new if isinstance(answer, Created) else answer
            case "abort":
                return _or_error(lambda: self.store.abort(job_id).status)
            case "claim":
                return _note(held, self.store.claim(job_id, worker, LEASE_S))
            case "take":
                return _note(held, self.store.take(MODEL, JOBS[0], worker, LEASE_S))
            case "wake":
                return [hint.job_id for hint in self.store.wake()]
            case "renew":
                answers = dict(self.store.renew(held, LEASE_S))
                self.held[worker] = {each: held[each] for each in held if answers[each] is not Lease.LOST}
                return answers
            case "reap":
                return list(self.store.reap(MAX_ATTEMPTS))
            case "tick":
                self.clock.advance(LEASE_S / 2)
            case "crash":
                held.clear()
        return None

    def _write(self, verb: Verb, held: dict[str, int], job_id: str) -> Any:
        attempt, store = held[job_id], self.store
        if verb not in ("finish unheard", "isolate"):
            del held[job_id]
        match verb:
            case "finish" | "finish unheard":
                return store.finish(job_id, attempt, succeeded())
            case "fail":
                return store.finish(job_id, attempt, failed())
            case "retry":
                return store.retry(job_id, attempt, model_error(), MAX_ATTEMPTS)
            case "release":
                return store.release(job_id, attempt)
            case _:
                return store.isolate(job_id, attempt)


def _note(held: dict[str, int], claimed: Claimed | NotClaimed) -> Any:
    if isinstance(claimed, NotClaimed):
        return claimed
    held[claimed.job.id] = claimed.attempt
    return claimed.job.id, claimed.attempt, claimed.solo


def _or_error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except SafelightError as error:
        return type(error)

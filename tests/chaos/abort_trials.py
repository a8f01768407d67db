"""Aborts at every boundary of a job's life, at random moments around it, many times: counted, never timed.

`python -m tests.chaos.abort_trials --trials 1000 --seed 7` prints the table and ends with 1 if a trial went wrong.
"""

from __future__ import annotations

import argparse
import io
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from PIL import Image

from tasks.errors import IdempotencyConflict
from tasks.job import Job, JobStatus
from tasks.local.servers import start_redis
from tasks.models import Models, load_models
from tasks.settings import Settings
from tasks.store import Created
from tasks.submission import accepted, new_job
from tests.chaos.abort_node import MODELS, Node, Wire, running_node
from tests.chaos.verdict import expected_pixels

Boundary = Literal[
    "queued", "claimed", "batched", "denoising", "decoding", "uploading", "finished",
    "no worker", "two aborts", "group", "sent again",
]  # fmt: skip
BOUNDARIES: tuple[Boundary, ...] = get_args(Boundary)
_WIRES: tuple[Wire, ...] = get_args(Wire)
#: Trials at a time, whose jobs meet in batches.
_LANES, _WAIT_S = 8, 60.0


@dataclass
class Count:
    """Of one boundary: how the jobs that were to be aborted ended, how far they had come, and what went wrong."""

    ends: Counter[str] = field(default_factory=Counter)
    never_claimed: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Trial:
    """Its own jobs, drawn from a seed of its own."""

    number: int
    boundary: Boundary
    chance: random.Random
    node: Node
    models: Models

    def job(self, name: str, **fields: object) -> str:
        body: dict[str, object] = {
            "prompt": name,
            "model": self.chance.choice(MODELS),
            "seed": self.chance.randrange(2**32),
            "num_inference_steps": self.chance.choice([3, 5, 8]),
            "num_outputs": self.chance.choice([1, 1, 2]),
            **fields,
        }
        job_id = f"{self.boundary.replace(' ', '-')}-{self.number}-{name}"
        accepted(self.node.store.create([new_job(body, self.models, job_id=job_id)]))
        return job_id

    # -- the ways to abort --------------------------------------------------------------------------------------

    def run(self) -> tuple[list[Job], list[str]]:
        """The jobs that were to be aborted, as they ended, and what is wrong."""
        mate = self.job("mate", group="others")
        victims = [self.job("victim", group=f"g{self.number}")]
        if self.boundary == "group":
            victims.append(self.job("second", group=f"g{self.number}"))
        if self.boundary == "no worker":
            answers = [self.node.store.abort(victims[0])]
            self._deliver([mate, *victims])
        else:
            answers = self._race(mate, victims)
        wrong = [f"{mate}: {what}" for what in self._wrong_mate(self.node.store.get(mate))]
        ended = [self.node.store.get(victim) for victim in victims]
        for job in ended:
            wrong += [f"{job.id}: {what}" for what in self._wrong_victim(job, answers)]
        if self.boundary == "sent again":
            wrong += self._wrong_after_resubmit(ended[0])
        return ended, wrong

    def _race(self, mate: str, victims: list[str]) -> list[Job]:
        """Deliver all, and abort when the wire is touched, or the time is ripe, give or take some milliseconds."""
        due, answers = threading.Event(), list[Job]()
        wires = [self.boundary] if self.boundary in _WIRES else []
        if self.boundary in ("two aborts", "group", "sent again"):
            wires = [self.chance.choice(_WIRES)]
        for wire in wires:
            self.node.wires.lay(wire, victims[0], due.set)  # type: ignore[arg-type]
        delays_s = [
            max(0.0, self.chance.uniform(-0.004, 0.008)) for _ in range(2 if self.boundary == "two aborts" else 1)
        ]

        def abort(delay_s: float) -> None:
            if wires:
                due.wait(_WAIT_S)
            time.sleep(delay_s)
            if self.boundary == "group":
                self.node.store.abort_group(f"g{self.number}")
            else:
                answers.append(self.node.store.abort(victims[0]))

        threads = [threading.Thread(target=abort, args=(delay_s,)) for delay_s in delays_s]
        for thread in threads:
            thread.start()
        self._deliver([mate, *victims])
        due.set()
        for thread in threads:
            thread.join(_WAIT_S)
        return answers

    def _deliver(self, job_ids: list[str]) -> None:
        self.chance.shuffle(job_ids)
        threads = [threading.Thread(target=self.node.deliver, args=(job_id,)) for job_id in job_ids]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_WAIT_S)
            assert not thread.is_alive(), "a delivery does not end"

    # -- what must hold -----------------------------------------------------------------------------------------

    def _wrong_mate(self, job: Job) -> list[str]:
        wrong = [f"ended as {job.status}"] if job.status is not JobStatus.SUCCEEDED else []
        return [*wrong, *self._wrong_outputs(job)]

    def _wrong_victim(self, job: Job, answers: list[Job]) -> list[str]:
        wrong = []
        if job.status not in (JobStatus.ABORTED, JobStatus.SUCCEEDED):
            wrong.append(f"ended as {job.status}: {job.error}")
        kinds = [event.type for event in self.node.store.events(job.id)]
        if kinds.count("done") != 1:
            wrong.append(f"ended {kinds.count('done')} times")
        if any(answer.status.is_terminal and answer.status is not job.status for answer in answers):
            wrong.append(f"the abort was answered {[answer.status for answer in answers]}, it is {job.status}")
        if self.boundary == "no worker" and (job.status, job.attempt) != (JobStatus.ABORTED, 0):
            wrong.append(f"was {job.status} in attempt {job.attempt}")
        if self.node.client.exists(f"safelight:abort:{job.id}"):
            wrong.append("its abort outlives it")
        return [*wrong, *self._wrong_outputs(job)]

    def _wrong_outputs(self, job: Job) -> list[str]:
        found = self.node.bucket.objects.pop(job.id, {})
        if job.status is not JobStatus.SUCCEEDED:
            return [f"{job.status}, with objects {sorted(found)}"] if found or job.outputs else []
        keys = [output.uri.split("/", 3)[3] for output in job.outputs]
        if sorted(keys) != sorted(found) or len(keys) != job.request.num_outputs:
            return [f"names {keys}, has {sorted(found)}"]
        body = job.request.model_dump()
        pixels = [Image.open(io.BytesIO(found[key])).tobytes() for key in keys]
        right = [expected_pixels(body, index) for index in range(len(keys))]
        return [] if pixels == right else ["has the wrong pixels"]

    def _wrong_after_resubmit(self, job: Job) -> list[str]:
        """The same id is the same job, for ever; another body is refused."""
        again = new_job(job.request.model_dump(exclude_unset=True), self.models, job_id=job.id)
        other = new_job({"prompt": "another", "model": MODELS[0]}, self.models, job_id=job.id)
        same = type(again)(again.job_id, again.request, _digest(self.node, job.id))
        [known, refused] = self.node.store.create([same, other])
        self.node.deliver(job.id)
        wrong = []
        if not isinstance(known, Created) or known.is_new or known.job.status is not job.status:
            wrong.append(f"{job.id}: sent again, it is {known}")
        if not isinstance(refused, IdempotencyConflict):
            wrong.append(f"{job.id}: another body under its id is {refused}")
        if self.node.store.get(job.id) != job:
            wrong.append(f"{job.id}: changed by being sent again")
        return wrong


def _digest(node: Node, job_id: str) -> str:
    return str(node.client.hget(f"safelight:job:{job_id}", "digest"))


def run_trials(
    settings: Settings, models: Models, seed: int, num_trials: Callable[[Boundary], int]
) -> dict[Boundary, Count]:
    """Some trials at a time, of all boundaries mixed."""
    order = [(boundary, number) for boundary in BOUNDARIES for number in range(num_trials(boundary))]
    random.Random(seed).shuffle(order)
    counts = {boundary: Count() for boundary in BOUNDARIES}
    with running_node(settings) as node, ThreadPoolExecutor(_LANES) as lanes:
        pending: list[tuple[Boundary, Future[tuple[list[Job], list[str]]]]] = []
        for boundary, number in order:
            trial = Trial(number, boundary, random.Random(f"{seed} {boundary} {number}"), node, models)
            pending.append((boundary, lanes.submit(trial.run)))
        for boundary, future in pending:
            ended, wrong = future.result()
            count = counts[boundary]
            count.ends.update(job.status.value for job in ended)
            count.never_claimed += sum(job.attempt == 0 for job in ended)
            count.wrong += wrong
        left = [node.client.zcard(f"safelight:{name}") for name in ("leases", "hints", "status:running")]
        # The step that was in the device when the story ended may still come out; a second one has no excuse.
        late = [request_id for (request_id, _), num_steps in node.wires.late.items() if num_steps > 1]
        if any(left) or late:
            counts["queued"].wrong.append(f"left over: {left}, went on after their end: {late}")
    return counts


def trial_models(home: Path) -> Models:
    path = home / "models.toml"
    shared = (
        'source = "fake:"\ndefaults = { height = 8, width = 8, num_inference_steps = 3 }\n'
        "limits = { min_size = 8, max_size = 64, max_steps = 100 }\n"
    )
    path.write_text("".join(f"[{name}]\n{shared}" for name in MODELS), "utf-8")
    return load_models(path)


def table(counts: dict[Boundary, Count]) -> str:
    lines = ["| abort at | aborted | of those never claimed | had succeeded before | wrong |", "| --- " * 5 + "|"]
    for boundary, count in counts.items():
        ends = count.ends
        figures = (ends["aborted"], count.never_claimed, ends["succeeded"], len(count.wrong))
        lines.append(f"| {boundary} | " + " | ".join(map(str, figures)) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.abort_trials", description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, help="for each boundary")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aborts-") as folder:
        home = Path(folder)
        server = start_redis(home / "redis")
        try:
            counts = run_trials(
                Settings(redis_url=server.url), trial_models(home), args.seed, lambda boundary: int(args.trials)
            )
        finally:
            server.process.stop()
    print(f"seed {args.seed}", table(counts), sep="\n")
    wrong = [what for count in counts.values() for what in count.wrong]
    print(*wrong[:50], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

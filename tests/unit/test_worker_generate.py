"""How a job is settled when the store, the engine or a drain gets in the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from engine import Failed
from tasks.artifacts import UploadFailed
from tasks.errors import StoreUnavailable
from tasks.job import Job, JobError, JobMetrics, JobStatus, Output
from tasks.redaction import Redactor
from tasks.request import GenerationRequest
from tasks.store import Claimed, Hint, Outcome, Written
from worker.attempt import Attempt, Attempts, Late, Stop
from worker.gate import Gate
from worker.generate import Generate
from worker.progress import ProgressWriter
from worker.verdict import Abandon, Finish, GiveBack

OUTPUT = Output(uri="s3://b/j/1/0.png", content_type="image/png", seed=7, size_bytes=1, sha256="0" * 64)
SUCCESS = Finish(Outcome(JobStatus.SUCCEEDED, outputs=(OUTPUT,)))


def a_job(**fields: Any) -> Job:
    now = datetime.now(UTC)
    request = GenerationRequest(prompt="a boat", model="tiny", **fields)
    return Job(id="j", status=JobStatus.RUNNING, request=request, created_at=now, started_at=now)


class Store:
    """Answers `finish` from a list, where a callable stands for what happens while the answer is lost."""

    def __init__(self, *answers: Written | Callable[[], object]) -> None:
        self._answers = list(answers)
        self.finished: list[JobStatus] = []
        self.released: list[str] = []
        self.tracebacks: list[str] = []
        self.messages: list[str] = []
        self.on_claim: Callable[[], object] = lambda: None

    def take(self, model: str, hint: str, worker: str, lease_s: float) -> Claimed:
        self.on_claim()
        return Claimed(a_job(), 1, solo=False)

    def wake(self) -> list[Hint]:
        return []

    def finish(self, job_id: str, attempt: int, outcome: Outcome) -> Written:
        self.finished.append(outcome.status)
        self.tracebacks.append(outcome.traceback)
        self.messages += [outcome.error.message] if outcome.error else []
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Written):
            return answer
        answer()
        raise StoreUnavailable("away")

    def retry(
        self, job_id: str, attempt: int, error: JobError, max_attempts: int, metrics: JobMetrics, *, traceback: str = ""
    ) -> JobStatus:
        self.tracebacks.append(traceback)
        self.messages.append(error.message)
        return JobStatus.FAILED

    def release(self, job_id: str, attempt: int) -> Written:
        self.released.append(job_id)
        return Written.OK


class Bench:
    """A `Generate` whose surroundings are told what to do."""

    def __init__(self, store: Store, engine_state: str = "running", lease_s: float = 10) -> None:
        self.draining = False
        self.broken: list[str] = []
        self.discarded: list[Output] = []
        self.forgotten: list[Attempt] = []
        self.attempts = Attempts()
        engine = SimpleNamespace(stats=lambda: SimpleNamespace(state=engine_state))
        surroundings: dict[str, Any] = {
            "store": store,
            "engines": {"tiny": engine},
            "hinter": SimpleNamespace(publish=lambda hints: True),
            "inputs": None,
            "uploader": SimpleNamespace(
                discard=self.discarded.extend, find=lambda attempt: None, unpack=lambda attempt, *, for_a_retry: None
            ),
            "checkpoints": SimpleNamespace(find=lambda attempt: None, forget=self.forgotten.append),
            "attempts": self.attempts,
            "progress": ProgressWriter(store),  # type: ignore[arg-type]
            "gate": Gate(),
            "draining": lambda: self.draining,
            "on_broken": self.broken.append,
        }
        self.generate = Generate(
            worker="w", lease_s=lease_s, max_attempts=3, stall_s=60, redact=Redactor(["hunter22"]), **surroundings
        )


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.settle.PAUSE_S", 0.01)


@pytest.mark.parametrize("reason", [Stop.LOST, Stop.ABORT])
def test_a_success_whose_answer_was_lost_keeps_its_objects(reason: Stop) -> None:
    attempt = Attempt(a_job(), 1, solo=False)
    bench = Bench(store := Store(lambda: attempt.stop(reason), Written.OK))
    assert bench.generate._settler.settle(attempt, SUCCESS, (OUTPUT,)) == "succeeded"
    assert (store.finished, bench.discarded) == ([JobStatus.SUCCEEDED] * 2, [])


@pytest.mark.parametrize("answer", [Written.FENCED, Written.TERMINAL])
def test_what_a_refused_attempt_stored_is_deleted(answer: Written) -> None:
    bench = Bench(Store(lambda: None, answer))
    bench.generate._settler.settle(Attempt(a_job(), 1, solo=False), SUCCESS, (OUTPUT,))
    assert bench.discarded == [OUTPUT]


@pytest.mark.parametrize("answer", [Written.OK, Written.FENCED, Written.TERMINAL])
def test_the_checkpoint_of_a_job_that_goes_on_elsewhere_stays(answer: Written) -> None:
    """A worker that was stopped for longer than its lease changes nothing when it goes on."""
    bench = Bench(Store(answer))
    bench.generate._settler.settle(attempt := Attempt(a_job(), 2, solo=False), SUCCESS, (OUTPUT,))
    assert bench.forgotten == ([] if answer is Written.FENCED else [attempt])


def test_a_stop_before_the_first_try_decides() -> None:
    lost, wanted = Attempt(a_job(), 1, solo=False), Attempt(a_job(), 1, solo=False)
    lost.stop(Stop.LOST)
    wanted.stop(Stop.ABORT)
    bench = Bench(store := Store(Written.OK))
    assert bench.generate._settler.settle(lost, SUCCESS, (OUTPUT,)) == "lease lost"
    assert bench.generate._settler.settle(wanted, SUCCESS, (OUTPUT,)) == "aborted"
    assert (store.finished, bench.discarded) == ([JobStatus.ABORTED], [OUTPUT, OUTPUT])


def test_a_drain_does_not_wait_for_a_lost_store_for_ever() -> None:
    bench = Bench(Store(lambda: None), lease_s=0.05)
    bench.draining = True
    assert bench.generate._settler.settle(Attempt(a_job(), 1, solo=False), SUCCESS, (OUTPUT,)) == "unsettled"
    assert bench.discarded == []  # the record may name them


def test_a_job_claimed_while_the_drain_begins_goes_back() -> None:
    bench = Bench(store := Store(Written.OK))
    store.on_claim = lambda: setattr(bench, "draining", True)
    assert bench.generate.run("tiny", "another's") == "given back"
    assert store.released == ["j"]


@pytest.mark.parametrize("state", ["closing", "closed"])
def test_an_engine_that_was_closed_blames_nobody(state: str) -> None:
    attempt = Attempt(a_job(), 1, solo=False)
    attempt.started = True
    bench = Bench(Store(Written.OK), state)
    bench.draining = True
    assert bench.generate._engine_gone(attempt, "the engine was closed") == GiveBack()
    assert bench.broken == []


def test_an_engine_that_died_may_have_died_of_what_it_ran() -> None:
    running, waiting = Attempt(a_job(), 1, solo=False), Attempt(a_job(), 1, solo=False)
    running.started = True
    bench = Bench(Store(Written.OK), "running")
    assert bench.generate._engine_gone(running, "the engine died") == Abandon()
    assert bench.generate._engine_gone(waiting, "the engine died") == GiveBack()
    assert len(bench.broken) == 2


def test_a_deadline_counts_from_the_creation_whatever_the_job_waits_for() -> None:
    job = a_job(deadline_s=10)
    job = job.model_copy(update={"created_at": job.created_at - timedelta(seconds=4)})
    attempt = Attempt(job, 1, solo=False)
    assert attempt.check_deadline() == pytest.approx(6, abs=0.5)
    attempt.claimed_at = time.monotonic() - 7
    with pytest.raises(Late):
        attempt.check_deadline()
    assert Attempt(a_job(), 1, solo=False).check_deadline() is None


@pytest.mark.parametrize("reason", [Stop.DRAIN, Stop.ABORT])
def test_what_is_rendered_and_not_stored_outlives_a_drain_only(reason: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(Store(Written.OK))
    kept: list[object] = []
    monkeypatch.setattr(bench.generate, "_checkpoints", SimpleNamespace(keep=lambda _, done: kept.append(done)))
    attempt = Attempt(a_job(), 1, solo=False)

    def upload_waits(_: Attempt) -> Any:
        attempt.seal = lambda: "the finished outputs"  # type: ignore[assignment, return-value]
        attempt.stop(reason)
        attempt.check()

    monkeypatch.setattr(bench.generate, "_render_and_send", upload_waits)
    bench.generate._attempt(attempt)
    assert kept == (["the finished outputs"] if reason is Stop.DRAIN else [])


@pytest.mark.parametrize("error", [RuntimeError, lambda text: UploadFailed(text, retryable=False)])
def test_an_error_leaves_its_traceback_without_secrets(
    error: Callable[[str], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(store := Store(Written.OK))

    def broken(_: Attempt) -> Any:
        raise error("no answer from https://user:pass@example.org for hunter22")

    monkeypatch.setattr(bench.generate, "_render_and_send", broken)
    bench.generate.run("tiny", "j")
    [traceback] = store.tracebacks
    assert all("hunter22" not in message for message in store.messages)
    assert "in broken" in traceback and "no answer from https://***@example.org for ***" in traceback


def test_the_engines_traceback_is_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(store := Store(Written.OK))
    end = Failed("j.1", "model_error", "it broke", traceback="Traceback (most recent call last):\nhunter22")
    monkeypatch.setattr(bench.generate._renderer, "render", lambda attempt: end)
    bench.generate.run("tiny", "j")
    assert store.tracebacks == ["Traceback (most recent call last):\n***"]

"""Whether the demo went as it should: every fault as one sentence. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.cli.demo.drive import Submitted
from tasks.cli.demo.plan import LONG_STEPS, WRONG_FIELD, Planned, Role
from tasks.job import Job, JobStatus


def faults_of(plan: Sequence[Planned], jobs: Sequence[Job], done: Submitted) -> list[str]:
    """Empty if all is well. `jobs` are the ended jobs in the plan's order."""
    faults = [
        f"job {planned.number:02} ({planned.role}): {fault}"
        for planned, job in zip(plan, jobs, strict=True)
        for fault in _faults_of_job(planned, job, done)
    ]
    status, problem = done.refusal
    if status != 422 or problem.get("field") != WRONG_FIELD:
        faults.append(
            f"the wrong request: answered {status} naming {problem.get('field')!r}, not 422 naming {WRONG_FIELD}"
        )
    batches = [job.metrics.batch_size_mean or 0.0 for job in jobs]
    if max(batches) <= 1:
        faults.append("no two jobs shared a batch")
    return faults


def _faults_of_job(planned: Planned, job: Job, done: Submitted) -> list[str]:
    match planned.role:
        case Role.ABORT_RUNNING:
            return _faults_of_running_abort(job, done)
        case Role.ABORT_QUEUED:
            return _faults_of_queued_abort(job, done)
        case _:
            return _faults_of_kept(planned, job)


def _faults_of_kept(planned: Planned, job: Job) -> list[str]:
    if job.status is not JobStatus.SUCCEEDED:
        return [f"is {job.status}, not succeeded" + (f" ({job.error.message})" if job.error else "")]
    wanted = planned.request.get("num_outputs", 1)
    if len({output.sha256 for output in job.outputs}) != wanted:
        return [f"has {len(job.outputs)} outputs, not {wanted} different ones"]
    return []


def _faults_of_running_abort(job: Job, done: Submitted) -> list[str]:
    if job.status is not JobStatus.ABORTED:
        return [f"is {job.status}, not aborted"]
    if done.step_at_abort < 1 or job.attempt < 1:
        return ["was not running when it was aborted"]
    return [f"ran all its {LONG_STEPS} steps"] if job.progress.step >= LONG_STEPS else []


def _faults_of_queued_abort(job: Job, done: Submitted) -> list[str]:
    if job.status is not JobStatus.ABORTED:
        return [f"is {job.status}, not aborted"]
    if done.status_before_abort != JobStatus.QUEUED or job.attempt:
        return ["was not waiting when it was aborted"]
    return []

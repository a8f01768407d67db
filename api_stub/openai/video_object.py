"""A job as OpenAI's video object. Pure."""

from __future__ import annotations

from api_stub.openai.schema import Video, VideoError
from tasks.job import Job, JobStatus

_STATUS = {
    JobStatus.QUEUED: "queued",
    JobStatus.RUNNING: "in_progress",
    JobStatus.SUCCEEDED: "completed",
    JobStatus.FAILED: "failed",
    JobStatus.ABORTED: "failed",  # OpenAI has no word for it; the error's code says `aborted`
}
_LEAST_POLL_MS, _MOST_POLL_MS = 250, 5_000


def video_of(job: Job, result_ttl_s: float) -> Video:
    request = job.request
    finished = None if job.finished_at is None else int(job.finished_at.timestamp())
    return Video(
        id=job.id,
        status=_STATUS[job.status],
        progress=100 if job.status is JobStatus.SUCCEEDED else min(99, int(job.progress.fraction * 100)),
        created_at=int(job.created_at.timestamp()),
        completed_at=finished if job.status is JobStatus.SUCCEEDED else None,
        expires_at=None if finished is None else finished + int(result_ttl_s),
        model=request.model or "",
        prompt=request.prompt,
        size=f"{request.width}x{request.height}",
        seconds=_seconds(job),
        error=_error(job),
    )


def poll_after_ms(job: Job) -> int:
    """When a look is worth the trip, in the header that openai's clients obey."""
    eta_ms = 1_000 if job.progress.eta_s is None else int(job.progress.eta_s * 1_000)
    return min(max(eta_ms, _LEAST_POLL_MS), _MOST_POLL_MS)


def _seconds(job: Job) -> str:
    """A clip of N seconds has one picture more than N times fps; it is called N seconds all the same."""
    request = job.request
    if request.num_frames and request.fps:
        whole = (request.num_frames - 1) / request.fps
        length = (
            whole if whole > 0 and abs(whole - round(whole)) < 0.5 / request.fps else request.num_frames / request.fps
        )
    else:
        length = (job.outputs[0].duration_s if job.outputs else None) or request.duration_s or 0.0
    return f"{round(length) if abs(length - round(length)) < 0.01 else round(length, 2):g}"


def _error(job: Job) -> VideoError | None:
    if job.status is JobStatus.ABORTED:
        return VideoError(code="aborted", message="the job was aborted")
    return None if job.error is None else VideoError(code=job.error.type, message=job.error.message)

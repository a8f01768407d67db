"""What a shell offers for a word that is being typed. Never an error and never a wait: no answer is an answer."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Iterator

#: Between a tab and what it brings; a Redis that is slower than that offers nothing.
_PATIENCE_S = 1.0
_MAX_IDS = 30


def models(incomplete: str) -> list[str]:
    """Names of the models file."""
    with _in_silence():
        from tasks.cli.connect import settings_here
        from tasks.models import load_models

        return _starting(incomplete, load_models(settings_here().models).names)
    return []


def schedulers(incomplete: str) -> list[str]:
    """Noise schedulers of any model of the file."""
    with _in_silence():
        from tasks.cli.connect import settings_here
        from tasks.models import load_models

        specs = load_models(settings_here().models)
        return _starting(incomplete, list(dict.fromkeys(name for spec in specs for name in spec.noise_schedulers)))
    return []


def formats(incomplete: str) -> list[str]:
    return _starting(incomplete, ["png", "jpeg", "webp", "mp4", "gif", "wav", "flac"])


def statuses(incomplete: str) -> list[str]:
    return _starting(incomplete, ["queued", "running", "succeeded", "failed", "aborted"])


def job_ids(incomplete: str) -> list[str]:
    """Recent jobs, newest first."""
    return [job_id for job_id, _ in _recent() if job_id.startswith(incomplete)]


def live_job_ids(incomplete: str) -> list[str]:
    """Those that wait or run, for `watch` and `abort`."""
    return [job_id for job_id, is_live in _recent() if is_live and job_id.startswith(incomplete)]


def _recent() -> list[tuple[str, bool]]:
    """Ids and whether they are live; asked by a thread that is left alone when the time is over."""
    found: list[tuple[str, bool]] = []
    with _in_silence():
        from tasks.cli.connect import settings_here
        from tasks.connection import connect
        from tasks.redis_store import RedisJobStore

        settings = settings_here()

        def ask() -> None:
            with contextlib.suppress(Exception), connect(settings) as client:
                jobs = RedisJobStore(client, settings.key_prefix).list(limit=_MAX_IDS).jobs
                found.extend((job.id, not job.status.is_terminal) for job in jobs)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(_PATIENCE_S)
    return list(found)


def _starting(incomplete: str, words: list[str] | tuple[str, ...]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


@contextlib.contextmanager
def _in_silence() -> Iterator[None]:
    """Notes and errors would land in the middle of the line that is being typed."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception):
        yield

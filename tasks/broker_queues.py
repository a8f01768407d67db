"""Names of Celery's tasks and queues, and of the Redis lists behind them: all that we use of kombu's private layout."""

from __future__ import annotations

from collections.abc import Sequence

#: The task that runs a job; its message carries the id alone.
GENERATE = "safelight.generate"
#: The task that creates a job from a request, for producers that only know Celery; also the name of its queue.
SUBMIT = "safelight.submit"
#: kombu keeps one list for each step and reads them in this order: its 0 goes first, where our 9 does.
PRIORITY_STEPS = (0, 3, 6, 9)
_SEPARATOR = "\x06\x16"


def queue_for(model: str) -> str:
    return f"safelight.{model}"


def broker_priority(priority: int) -> int:
    return 9 - priority


def queue_lists(model: str) -> list[str]:
    """The Redis lists of a model's messages that no worker has taken yet, one for each priority step."""
    queue = queue_for(model)
    return [f"{queue}{_SEPARATOR}{step}" if step else queue for step in PRIORITY_STEPS]


def depths(models: Sequence[str], lengths: Sequence[int]) -> dict[str, int]:
    """Messages of each model, from the lengths of their `queue_lists`, in order."""
    width = len(PRIORITY_STEPS)
    return {model: sum(lengths[at * width : (at + 1) * width]) for at, model in enumerate(models)}

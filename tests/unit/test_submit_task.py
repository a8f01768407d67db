"""A job from a Celery message: whatever the call looks like, it leaves a record under its id."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tasks.memory import MemoryJobStore
from tasks.models import load_models
from tasks.submit_task import one_message, submit_message


def test_a_celery_message_that_is_no_object_keeps_what_it_was() -> None:
    """So that its job can say what is wrong with it."""
    assert one_message([{"prompt": "a"}], {"seed": 1}) == {"prompt": "a", "seed": 1}
    assert one_message([], {"request": {"prompt": "a"}, "seed": 1}) == {"prompt": "a", "seed": 1}
    assert one_message([None], {"prompt": "a"}) == {"prompt": "a"}
    assert one_message([5], {"prompt": "a"}) == {"prompt": "a", "request": 5}
    assert one_message([1, 2, 3], {"prompt": "a"}) == {"prompt": "a", "args": [1, 2, 3]}


@pytest.mark.parametrize(
    ("args", "kwargs", "word"),
    [((1, 2, 3), {}, "args"), ((), {"self": 1}, "self"), (("x",), {"prompt": "a"}, "request")],
)
def test_a_celery_call_of_any_form_leaves_a_job(args: tuple[Any, ...], kwargs: dict[str, Any], word: str) -> None:
    store, models = MemoryJobStore(), load_models(None)
    hinter: Any = SimpleNamespace(publish=lambda hints: None)
    job = submit_message("t1", one_message(args, kwargs), store, models, hinter)
    assert job is not None and job.status == "failed"
    assert job.error is not None and word in job.error.message

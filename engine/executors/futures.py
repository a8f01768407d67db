"""Calls on the front's thread whose results come later, from ranks. All of it happens on that thread."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from ..errors import RankLost
from ..inbox import Call


def make(call: Call) -> None:
    """Make the call, unless it was taken back. A result that is a future is waited for by nobody here."""
    if not call.future.set_running_or_notify_cancel():
        return
    try:
        result = call.function()
    except BaseException as error:
        call.future.set_exception(error)
        return
    if isinstance(result, Future):
        result.add_done_callback(lambda done: settle(call.future, done))
    else:
        call.future.set_result(result)


def settle(future: Future[object], done: Future[object]) -> None:
    """What became of the one becomes of the other."""
    error = done.exception()
    if error is None:
        future.set_result(done.result())
    else:
        future.set_exception(error)


def gather(asked: Sequence[Future[object]], *, lost_is_fine: bool = False) -> Future[object]:
    """The answers in this order once all are there, or the first error that comes. That of a lost rank may be None."""
    whole: Future[object] = Future()
    answers: dict[int, object] = {}

    def note(index: int, done: Future[object]) -> None:
        error = done.exception()
        if whole.done():
            return
        if error is not None and not (lost_is_fine and isinstance(error, RankLost)):
            whole.set_exception(error)
            return
        answers[index] = None if error else done.result()
        if len(answers) == len(asked):
            whole.set_result([answers[index] for index in range(len(asked))])

    if not asked:
        whole.set_result([])
    for index, future in enumerate(asked):
        future.add_done_callback(partial(note, index))
    return whole

"""Calls on the front's thread whose results come later, from ranks."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

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
    """The answers in this order once all are there, or the first error in it. The answer of a lost rank may be None."""
    whole: Future[object] = Future()
    left = len(asked)

    def look(_: Future[object]) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            _settle_all(whole, asked, lost_is_fine)

    if not asked:
        whole.set_result([])
    for future in asked:
        future.add_done_callback(look)
    return whole


def _settle_all(whole: Future[object], asked: Sequence[Future[object]], lost_is_fine: bool) -> None:
    errors = [future.exception() for future in asked]
    bad = [error for error in errors if error is not None and not (lost_is_fine and isinstance(error, RankLost))]
    if bad:
        whole.set_exception(bad[0])
    else:
        whole.set_result([None if error else future.result() for future, error in zip(asked, errors, strict=True)])

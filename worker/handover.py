"""A delivery's thread waits for its job, until the job can do without: each attempt runs in a thread of its own."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

log = logging.getLogger(__name__)


def hand_over(call: Callable[[Callable[[str], None]], str], name: str) -> Future[str]:
    """Run `call` in a thread of its own. The future has its answer, or the word that it was let go with before.

    `call` gets the function that lets the waiting go, and then goes on by itself.
    """
    answer: Future[str] = Future()

    def let_go(word: str) -> None:
        if not answer.done():
            answer.set_result(word)

    def run() -> None:
        try:
            let_go(call(let_go))
        except BaseException as error:
            if answer.done():
                log.exception("%s: unexpected error after it was handed over", name)
            else:
                answer.set_exception(error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name=name, daemon=True).start()
    return answer

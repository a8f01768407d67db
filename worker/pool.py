"""Celery's thread pool with what the stock one lacks: terminate, and a drain that lets acknowledgements out.

One thread waits for each job in flight; the device has a thread of its own. The tasks run under stock `threads` too.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from celery.concurrency.thread import ApplyResult
from celery.concurrency.thread import TaskPool as ThreadPool

log = logging.getLogger(__name__)

_numbers = itertools.count(1)
_here = threading.local()


class Delivery:
    """One message being worked on; `terminate` asks its job to stop."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.terminated = threading.Event()
        self._on_terminate: Callable[[], object] | None = None

    def on_terminate(self, callback: Callable[[], object]) -> None:
        self._on_terminate = callback
        if self.terminated.is_set():
            callback()

    def terminate(self) -> None:
        self.terminated.set()
        if self._on_terminate is not None:
            self._on_terminate()


def current_delivery() -> Delivery | None:
    """The delivery that this thread works on, if this pool runs it."""
    return getattr(_here, "delivery", None)


class DeliveryPool(ThreadPool):  # type: ignore[misc]
    """Celery makes the instance; `delivery_pool` makes the class for it."""

    #: How long `on_stop` waits, as of that moment, for jobs that settle themselves. See `worker.drain`.
    patience_s: Callable[[], float] = staticmethod(lambda: 0.0)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._live: dict[int, Delivery] = {}
        self._hub: Any = None
        #: Celery's books of what was accepted and ended are made for one thread.
        self._books = threading.Lock()

    def register_with_event_loop(self, loop: Any) -> None:
        self._hub = loop

    def on_apply(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        callback: Callable[..., Any] | None = None,
        accept_callback: Callable[..., Any] | None = None,
        **_: Any,
    ) -> ApplyResult:
        delivery = Delivery()
        self._live[delivery.number] = delivery
        future = self.executor.submit(self._run, delivery, target, args, kwargs, callback, accept_callback)
        # Not in `_run`: one that waits for a thread when the pool stops is cancelled and never runs.
        future.add_done_callback(lambda _: self._live.pop(delivery.number, None))
        return ApplyResult(future)

    def _run(
        self,
        delivery: Delivery,
        target: Callable[..., Any],
        args: tuple[Any, ...] | None,
        kwargs: dict[str, Any] | None,
        callback: Callable[..., Any] | None,
        accept_callback: Callable[..., Any] | None,
    ) -> None:
        _here.delivery = delivery
        try:
            if accept_callback is not None:
                with self._books:
                    accept_callback(delivery.number, time.monotonic())
            answer = target(*(args or ()), **(kwargs or {}))
            if callback is not None:
                with self._books:
                    callback(answer)
        except BaseException:
            log.exception("a delivery failed outside its task")
        finally:
            _here.delivery = None

    def terminate_job(self, pid: int, signal: Any = None) -> None:
        """`pid` is the delivery's number, as the accept callback told Celery."""
        delivery = self._live.get(pid)
        if delivery is not None:
            delivery.terminate()

    def on_stop(self) -> None:
        """With no patience left, jobs go on in their threads and settle with the store; only their acks are lost."""
        self.executor.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + self.patience_s()
        while self._live and time.monotonic() < deadline:
            self._let_acks_out()
            time.sleep(0.02)
        self._let_acks_out()
        if self._live:
            log.warning("the pool stops while %d jobs go on", len(self._live))

    def _let_acks_out(self) -> None:
        """Acks are queued on the event loop, which no longer turns while the pool stops: run them here."""
        hub = self._hub
        if hub is None:
            return
        for ready in list(hub._pop_ready()):
            try:
                ready()
            except Exception as error:
                log.warning("an acknowledgement failed; its message will come again: %s", error)


def delivery_pool(patience: Callable[[], float]) -> type[DeliveryPool]:
    """The pool class for one node, to be handed to Celery."""

    class NodePool(DeliveryPool):
        patience_s = staticmethod(patience)

    return NodePool

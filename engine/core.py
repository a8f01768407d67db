"""The engine's face: thread-safe calls that put commands into the device thread's inbox."""

import asyncio
import atexit
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self, cast

from .adapter import Capabilities, PipelineAdapter
from .backend import resolve_engine_class
from .checkpoint import Checkpoint, fingerprint
from .config import EngineConfig
from .device_memory import DeviceMemory
from .errors import EngineClosed
from .executors.executor import Executor
from .inbox import Abort, Call, Inbox, Submit, Wave
from .ledger import Account, Ledger
from .lifecycle import Lifecycle, State
from .loop import DeviceLoop
from .registry import make_adapter
from .request import DiffusionRequest
from .result import Failed, Media, media_parts
from .stats import EngineStats, RunningGroup
from .stream import OutputStream


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that reached somebody else `age_s` seconds ago, and where its events go."""

    request: DiffusionRequest
    stream: OutputStream
    age_s: float


class DiffusionEngine:
    """One model on one device thread. Build it with `make_engine`; safe from any thread and any event loop."""

    def __init__(
        self, config: EngineConfig, adapter: PipelineAdapter | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Without an adapter it is served by ranks in processes of their own, each of which has one."""
        self._config = config
        self._adapter = adapter
        self._clock = clock
        self._inbox = Inbox()
        self._ledger = Ledger(config.max_waiting)
        self._lifecycle = Lifecycle()
        parts = (self._inbox, self._ledger, self._lifecycle, clock)
        self._loop: Executor = _ranks(config, *parts) if adapter is None else DeviceLoop(config, adapter, *parts)
        self._ready: Future[Capabilities] = Future()
        # A daemon, so that a forgotten engine cannot keep the interpreter; closed at exit, so that torch never
        # runs in a dying one.
        self._thread = threading.Thread(
            target=self._loop.run, args=(self._ready,), name="safelight-device", daemon=True
        )

    @classmethod
    def make_engine(
        cls,
        config: EngineConfig,
        *,
        adapter: PipelineAdapter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Resolve, load and warm up. If any of it fails, everything is closed and the error raised (ModelLoadError).

        The class is this one or the subclass that `config.engine_backend` names. An `adapter` overrides its own.
        """
        chosen = resolve_engine_class(config.engine_backend, cls)
        if config.executor == "inline":
            adapter = adapter or chosen.default_adapter(config)
        elif adapter is not None:
            raise ValueError("an adapter that is given cannot serve in other processes; name an engine_backend")
        engine = chosen(config, adapter, clock)
        engine._start()
        return engine

    @staticmethod
    def default_adapter(config: EngineConfig) -> PipelineAdapter:
        """What serves a model when `make_engine` is given no adapter; a subclass may bring its own."""
        return make_adapter(config)

    def _start(self) -> None:
        atexit.register(self.close)
        self._thread.start()
        try:
            self._ready.result()
        except BaseException:
            self.close()
            raise

    @property
    def capabilities(self) -> Capabilities:
        """What the loaded model can do."""
        return self._ready.result()

    @property
    def checkpoint_model(self) -> str | None:
        """What its checkpoints say of the model, None in request mode; another engine's must say the same."""
        return self._loop.model

    def submit(self, request: DiffusionRequest) -> OutputStream:
        """Queue a request; the stream tells what becomes of it, a request that the model cannot run included.

        Raises ValueError if its id is active, QueueFull, EngineClosed, EngineDead.
        """
        self._inbox.require_open()
        stream = OutputStream(request.request_id, lambda: self._abort((request,)))
        account = Account(request, stream, self._clock())
        self._ledger.open(account)
        self._put((account,), Submit(request, account.submitted_s))
        return stream

    def submit_wave(self, arrivals: Sequence[Arrival]) -> None:
        """`submit` for requests that arrived elsewhere, seen together by the scheduler. The streams are the caller's.

        Each has the age that it arrived with. Raises as `submit` does; none is queued then.
        """
        self._inbox.require_open()
        now = self._clock()
        accounts = tuple(Account(one.request, one.stream, now - one.age_s) for one in arrivals)
        self._ledger.open_all(accounts)
        self._put(accounts, Wave(tuple(Submit(account.request, account.submitted_s) for account in accounts)))

    def _put(self, accounts: Sequence[Account], command: Submit | Wave) -> None:
        try:
            self._inbox.put(command)
        except EngineClosed as error:
            for account in accounts:
                failed = Failed(account.request.request_id, "internal", str(error), retryable=True)
                self._ledger.end(account, failed)
            raise

    def step_streaming(self, request: DiffusionRequest) -> OutputStream:
        """`submit` under the name that vLLM-Omni's engine has for it; the stream serves `for` and `async for`."""
        return self.submit(request)

    def abort(self, request_ids: str | Iterable[str]) -> None:
        """End these requests: a waiting one at once, a running one at the next step. Unknown ids mean nothing."""
        ids = {request_ids} if isinstance(request_ids, str) else set(request_ids)
        accounts = (self._ledger.find(request_id) for request_id in ids)
        self._abort(tuple(account.request for account in accounts if account is not None))

    def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
        rank: int | None = None,
    ) -> object:
        """Call one of the adapter's `methods` on the device thread, between two batches, and return its result.

        With ranks in processes of their own: on the one that `rank` names, or on all, and the result is the list of
        their answers in order of rank. `timeout` in seconds counts from now; a call that has not begun by then never
        will. Raises TimeoutError, ValueError for an unknown method or rank, EngineClosed, RankLost, and whatever the
        method raises.
        """
        call = self._loop.call(method, args, kwargs or {}, rank=rank, timeout_s=timeout)
        return self._call(call, timeout, method)

    async def async_collective_rpc(
        self,
        method: str,
        timeout: float | None = None,  # noqa: ASYNC109  (it also takes back a call that waits)
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
        rank: int | None = None,
    ) -> object:
        """`collective_rpc` for an event loop, which turns meanwhile. Cancelled before it has begun, it never will."""
        call = self._ask(self._loop.call(method, args, kwargs or {}, rank=rank, timeout_s=timeout))
        try:
            async with asyncio.timeout(timeout) as limit:
                return await asyncio.wrap_future(call.future)
        except TimeoutError:
            if limit.expired():
                raise _late(call, timeout, method) from None
            raise  # the method's own

    def profile(self, start: bool, prefix: str | None = None) -> object:
        """Start a profile, or stop it and return the path of its trace; `prefix` begins the file's name.

        With ranks in processes of their own: one each, and the paths in order of rank.
        """
        return self._call(self._loop.profile(start, prefix or f"diffusion_{int(time.time())}"), None, "profile")

    def export(self, request_id: str, timeout_s: float | None = None) -> Checkpoint | None:
        """End a request at its step boundary, as aborted, and return what another engine needs to go on from there.

        None when nothing of it is done, which ends it as well, or it is not open. In request mode None always, and the
        request goes on, as it does when this raises: TimeoutError, EngineClosed, and TypeError when the pipeline keeps
        a state that cannot be told.
        """
        if self.capabilities.mode == "request":  # at once: the device thread would not look before its batch has ended
            return None
        return cast(
            Checkpoint | None, self._call(lambda: self._loop.export(request_id, timeout_s), timeout_s, "export")
        )

    def sealed(self, request: DiffusionRequest, media: Sequence[Media]) -> Checkpoint | None:
        """A checkpoint of a finished request, for whoever could not hand its outputs over; None in request mode."""
        model = self._loop.model
        if model is None:
            return None
        return Checkpoint(fingerprint(request, model), (), {k: media_parts(item) for k, item in enumerate(media)})

    def pause(self, timeout_s: float | None = None) -> None:
        """Start no more batches; returns when the running one has ended. Submits and aborts go on being taken."""
        self._call(self._loop.pause, timeout_s, "pause")

    def resume(self, timeout_s: float | None = None) -> None:
        """Undo `pause`."""
        self._call(self._loop.resume, timeout_s, "resume")

    def stats(self) -> EngineStats:
        """How it goes. Never blocks, works in any state."""
        return self._loop.stats()

    def running_groups(self) -> tuple[RunningGroup, ...]:
        """What is under way now, by what rows must have in common. Never blocks, works in any state."""
        return self._loop.groups()

    def device_memory(self) -> DeviceMemory | None:
        """Of the devices that it runs on; None where they have none of their own."""
        return self._loop.memory()

    def close(self, timeout_s: float | None = 30.0) -> None:
        """End every open request as Failed, retryable, and wait for the device thread to let go of the model.

        If that takes longer than `timeout_s`, returns; the device thread completes the teardown by itself. Idempotent.
        """
        atexit.unregister(self.close)
        if self._lifecycle.move(State.CLOSING):
            self._inbox.close(EngineClosed("the engine was closed"))
        self._ledger.end_all("the engine was closed")
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _abort(self, requests: tuple[DiffusionRequest, ...]) -> None:
        with suppress(EngineClosed):  # closing has ended every request
            self._inbox.put(Abort(requests))

    def _ask(self, function: Callable[[], object]) -> Call:
        assert threading.current_thread() is not self._thread, "the device thread cannot wait for itself"
        call = Call(function)
        self._inbox.put(call)
        return call

    def _call(self, function: Callable[[], object], timeout_s: float | None, name: str) -> object:
        call = self._ask(function)
        try:
            return call.future.result(timeout_s)
        except FutureTimeout:
            if call.future.done() and not call.future.cancelled():
                raise  # the function's own
            raise _late(call, timeout_s, name) from None
        except CancelledError:
            raise EngineClosed("the engine was closed") from None


def _ranks(
    config: EngineConfig, inbox: Inbox, ledger: Ledger, lifecycle: Lifecycle, clock: Callable[[], float]
) -> Executor:
    """Imported by those alone who have them."""
    from .executors.front import RankLoop

    return RankLoop(config, inbox, ledger, lifecycle, clock)


def _late(call: Call, timeout_s: float | None, name: str) -> TimeoutError:
    """Take the call back if it has not begun."""
    state = "before" if call.future.cancel() else "during"
    return TimeoutError(f"{name}: {timeout_s} s passed {state} execution")
